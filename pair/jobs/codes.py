"""Why a job did not complete: the codes, and a fixed text for each (JB-37). Pure.

Texts of engines are never copied (JB-38); whatever is none of these codes is
recorded as a fault of ours.
"""

from __future__ import annotations

from pair.records.jobs import JobError

_ERRORS = {
    code: JobError(code, message)
    for code, message in {
        "busy": "All owners were busy.",
        "cancelled": "An operator cancelled it.",
        "client_gone": "The client left before the end.",
        "engine_error": "The engine reported an error in its stream.",
        "engine_redirect": "The engine answered with a redirect, which is never followed.",
        "engine_silent": "The engine did not answer in time.",
        "engine_status": "The engine refused the request.",
        "engine_stopped": "The engine that has the model is not running.",
        "engine_unreachable": "The engine could not be reached.",
        "internal": "A fault in PAIR ended it.",
        "loop": "The request came back to PAIR.",
        "model_not_loaded": "The model is loaded nowhere.",
        "model_unknown": "No node has the model.",
        "no_engine": "No engine serves this route.",
        "no_local_engine": "No engine of this node serves this route.",
        "node_silent": "The node did not answer in time.",
        "origin_lost": "The node that took the request was lost.",
        "origin_restarted": "The node that took the request was started anew.",
        "overloaded": "PAIR was at its limit.",
        "owners_excluded": "A rule or a drain keeps the owners of the model out.",
        "owners_offline": "The machines that have the model are off.",
        "route_unsupported": "The owners of the model do not serve this route.",
        "stopping": "PAIR was stopping.",
        "stream_lost": "The engine's answer broke off.",
    }.items()
}


def job_error(code: str) -> JobError:
    """The error of ``code``; of an unknown one, that of ``internal``."""
    return _ERRORS.get(code) or _ERRORS["internal"]
