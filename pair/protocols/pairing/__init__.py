"""The exchange that introduces two nodes by a code (cluster page, section 5): bytes in, actions out.

Pure. :class:`InviterExchange` and :class:`JoinerExchange` judge every message
and make every answer; whoever drives them has the sockets, the timers and the
store, and sends a proof, and the answer to one, 60 ms after what caused it
(CL-35). Randomness is an argument. They know nothing of clusters: statements
are bytes, and whether a peer may be a member is asked of their caller.

The page ``docs/architecture/pairing.rst`` describes the protocol.
"""

from pair.protocols.pairing.actions import (
    Admit,
    Answer,
    Ended,
    Hold,
    InviterAction,
    Join,
    JoinerAction,
    Keep,
    Offer,
    OverError,
    Reason,
    Refuse,
    Retract,
    Send,
    Show,
    State,
)
from pair.protocols.pairing.codes import CodeError, CodeKind, draw_code, parse_code, show_code
from pair.protocols.pairing.inviter import ForeignReplyError, InviterExchange
from pair.protocols.pairing.joiner import JoinerExchange
from pair.protocols.pairing.messages import End, EndState, Hello, MalformedError, Prove, Wait, read_request
from pair.protocols.pairing.parties import Party, Peer

__all__ = [
    "Admit",
    "Answer",
    "CodeError",
    "CodeKind",
    "End",
    "EndState",
    "Ended",
    "ForeignReplyError",
    "Hello",
    "Hold",
    "InviterAction",
    "InviterExchange",
    "Join",
    "JoinerAction",
    "JoinerExchange",
    "Keep",
    "MalformedError",
    "Offer",
    "OverError",
    "Party",
    "Peer",
    "Prove",
    "Reason",
    "Refuse",
    "Retract",
    "Send",
    "Show",
    "State",
    "Wait",
    "draw_code",
    "parse_code",
    "read_request",
    "show_code",
]
