"""How real ``twistd pair`` processes that cannot start end, and what they say last (OP-3 to OP-5, OP-13, OP-14)."""

from __future__ import annotations

from pair.test.integration.node import Node, NodeTestCase, wait_for


class ExitCodeTests(NodeTestCase):
    """Each is run as a person runs it, and read as the OS does."""

    def refused(self, node: Node, *options: str) -> int:
        """The exit code of a start that fails."""
        node.launch(*options)
        return node.end()

    def test_settings(self) -> None:
        """78: a setting, a variable or a file that is not valid; nothing was opened (OP-2, OP-5, OP-9)."""
        wrong = self.make_node("proxy.portz.ollama=1", embedded=False)
        self.assertEqual(self.refused(wrong), 78)
        self.assertIn("proxy.ports", wrong.output())
        self.assertEqual(wrong.last_line(), "pair: the settings are not valid; correct them, then start again")
        unknown = self.make_node(environ={"PAIR_SET__PROXY__PORTZ": "1"}, embedded=False)
        self.assertEqual(self.refused(unknown), 78)
        missing = self.make_node(embedded=False)
        self.assertEqual(self.refused(missing, "--config", str(missing.state / "pair.toml")), 78)
        for node in (wrong, unknown, missing):
            self.assertFalse(node.state.exists())

    def test_usage(self) -> None:
        """1: an option that there is not, which is twistd's to tell."""
        node = self.make_node(embedded=False)
        self.assertEqual(self.refused(node, "--nonsense"), 1)

    def test_check(self) -> None:
        """0: the settings are valid, and that was the question."""
        node = self.make_node(embedded=False)
        self.assertEqual(self.refused(node, "--check"), 0)
        self.assertFalse(node.state.exists())

    def test_no_directory(self) -> None:
        """73: the state directory is none."""
        node = self.make_node(embedded=False)
        node.state.touch()
        self.assertEqual(self.refused(node), 73)
        self.assertEqual(
            node.last_line(), f"pair: {node.state}: it is not a directory; choose another place with --state-dir"
        )

    def test_open_secret(self) -> None:
        """73: others may read a secret (OP-13)."""
        node = self.make_node(embedded=False)
        node.state.mkdir(mode=0o700)
        token = node.state / "control.token"
        token.touch()
        token.chmod(0o644)
        self.assertEqual(self.refused(node), 73)
        self.assertIn(f"chmod 600 {token}", node.last_line())

    def test_no_log(self) -> None:
        """73: the log file cannot be written (OP-17)."""
        node = self.make_node(embedded=False)
        node.state.mkdir(mode=0o700)
        (node.state / "logs").touch()
        self.assertEqual(self.refused(node), 73)
        self.assertIn(f"{node.state / 'logs'}: something that is no directory is in its place", node.last_line())

    def test_broken_store(self) -> None:
        """73: the store cannot be read (OP-16); the file is left as it is."""
        node = self.make_node(embedded=False)
        node.state.mkdir(mode=0o700)
        store = node.state / "pair.sqlite3"
        store.write_bytes(b"not a database" * 1000)
        self.assertEqual(self.refused(node), 73)
        self.assertIn(str(store), node.last_line())
        self.assertEqual(store.read_bytes(), b"not a database" * 1000)

    def test_two_at_once(self) -> None:
        """75: of two that start at once on one state directory one serves; the other names it and leaves it be."""
        first = self.make_node(embedded=False)
        second = self.make_node(embedded=False)
        second.state = first.state
        nodes = (first, second)
        for node in nodes:
            node.launch()
        wait_for("one to give up", lambda: any(node.ended for node in nodes))
        loser, winner = sorted(nodes, key=lambda node: not node.ended)
        self.assertEqual(loser.end(), 75)
        self.assertIn(f"another instance runs here, pid {winner.pid}, since ", loser.last_line())
        winner.wait_until_ready()
        winner.stop()
