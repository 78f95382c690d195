"""Nodes on a network that loses packets: none is given up that lives, and none is kept that does not."""

from __future__ import annotations

import os

from twisted.trial.unittest import SynchronousTestCase

from pair.test.discovery.weather import Weather

SEEDS = range(20) if os.environ.get("PAIR_FAULTS") else range(1)
"""The weathers that are tried (QA-14)."""

HOUR = 3600.0


class WeatherTests(SynchronousTestCase):
    def check_budgets(self, weather: Weather, seconds: float) -> None:
        """Announcements once a minute, questions and checks at most once a scan (DS-23, DS-54, DS-56)."""
        nodes = len(weather.hosts)
        self.assertLessEqual(weather.sent["announcement"], nodes * (seconds / 60 + 1))
        self.assertLessEqual(weather.sent["question"], nodes * (seconds / 4.5 + 1))
        self.assertLessEqual(weather.sent["answer"], nodes * seconds)

    def check_complete(self, weather: Weather) -> None:
        """Each node that is up knows each other, and nobody else."""
        up = {each.uuid for each in weather.hosts if each.up}
        for each in weather.hosts:
            if each.up:
                self.assertEqual(set(each.claims), up - {each.uuid})

    def test_thirty_nodes(self) -> None:
        """Thirty nodes, an hour, 30 % loss: nobody is given up, and hardly anybody even checked (DS-55 to DS-59)."""
        for seed in SEEDS:
            weather = Weather(30, 0.3, seed)
            weather.run(60.0)
            self.check_complete(weather)
            weather.run(HOUR)
            self.check_complete(weather)
            self.assertEqual(weather.lost, [])
            self.check_budgets(weather, HOUR + 60)
            self.assertLessEqual(weather.sent["check"], 30)

    def test_four_nodes(self) -> None:
        """Four nodes, a day, 30 % loss: nobody is given up, and a node checks another some times an hour."""
        for seed in SEEDS:
            weather = Weather(4, 0.3, seed)
            weather.run(24 * HOUR)
            self.check_complete(weather)
            self.assertEqual(weather.lost, [])
            self.check_budgets(weather, 24 * HOUR)
            self.assertLessEqual(weather.sent["check"] / (4 * 3 * 24), 10)

    def test_death(self) -> None:
        """Whoever dies is gone everywhere within 30 s where no packet is lost (DS-57), and comes back."""
        for nodes in (2, 3, 4, 30):
            for seed in range(5):
                weather = Weather(nodes, 0.0, seed)
                weather.run(120.0 + 3 * seed)
                dead = weather.hosts[seed % nodes]
                dead.stop()
                weather.run(30.0)
                self.check_complete(weather)
                self.assertEqual({gone for _, _, gone in weather.lost}, {dead.uuid})
                self.assertEqual(len(weather.lost), nodes - 1)
                dead.start()
                weather.run(2.5)
                self.check_complete(weather)

    def test_death_in_bad_weather(self) -> None:
        """Where packets are lost too, scans that hear nobody may delay it by their 30 s at most (DS-59)."""
        for nodes in (4, 30):
            for seed in range(5):
                weather = Weather(nodes, 0.3, seed)
                weather.run(120.0)
                dead = weather.hosts[seed % nodes]
                dead.stop()
                weather.run(60.0)
                self.check_complete(weather)
                self.assertEqual({gone for _, _, gone in weather.lost}, {dead.uuid})

    def test_idle(self) -> None:
        """Eight idle nodes send at most 5 packets a second in all, and check nobody (Measures)."""
        weather = Weather(8, 0.0)
        weather.run(HOUR)
        self.assertLessEqual(weather.sent.total() / HOUR, 5.0)
        self.assertEqual(weather.sent["check"], 0)

    def test_cut_off(self) -> None:
        """A host whose packets are all lost for half a minute gives nobody up: direct checks still answer (DS-59)."""
        weather = Weather(4, 0.0)
        weather.run(60.0)
        weather.loss = 1.0
        weather.run(30.0)
        self.assertEqual((weather.sent["check"], weather.lost), (0, []))
        weather.run(600.0)
        self.assertEqual(weather.lost, [])
        weather.loss = 0.0
        weather.run(10.0)
        self.check_complete(weather)
