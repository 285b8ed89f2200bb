"""Manifest files that change: what changed is handed over, what is broken leaves the last good state."""

import json
import os

import pytest
from structlog.testing import capture_logs
from watch_builders import Clock, Receiver, endpoint_slice, node, service

from pykubeproxy.watch.following import ManifestSource
from pykubeproxy.watch.source import Handlers


class Followed:
    """A source that looks only when told to."""

    def __init__(self, *paths, node_name=""):
        self.services, self.slices, self.nodes = Receiver(), Receiver(), Receiver()
        self.clock = Clock()
        self.partial = []
        handlers = Handlers(self.services, self.slices, self.nodes)
        self.source = ManifestSource(
            [str(path) for path in paths],
            handlers,
            node_name=node_name,
            on_partial=self.partial.append,
            clock=self.clock,
            sleep=self.clock.sleep,
        )

    def begin(self):
        """Look until what was there at the start is taken for all."""
        return self.look(3)

    def look(self, times=1):
        for _ in range(times):
            self.clock.now += 0.5
            self.source.look()
        return self


def put(path, *objects):
    """Write in place: the same inode."""
    path.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": list(objects)}))
    return path


def replace(path, *objects):
    """Write beside it and rename: another inode."""
    put(path.with_suffix(".new"), *objects).rename(path)


class TestTheFirstLook:
    def test_hands_everything_over(self, tmp_path):
        put(tmp_path / "a.yaml", service("a"), endpoint_slice("a-1"), node("node-a"), node("node-b"))
        followed = Followed(tmp_path, node_name="node-a").look()
        assert followed.source.has_synced
        assert followed.services.calls == [("replace", ["a"])]
        assert followed.slices.calls == [("replace", ["a-1"])]
        assert followed.nodes.calls == [("replace", ["node-a"])]

    def test_hands_over_the_rest_while_a_file_is_broken_and_says_so_before(self, tmp_path):
        put(tmp_path / "a.yaml", service("a"))
        (tmp_path / "b.yaml").write_text("kind: [")
        followed = Followed(tmp_path).look(3)
        assert followed.partial == [True]
        assert followed.services.calls == [("replace", ["a"])]
        status = followed.source.statuses["services"]
        assert status.consecutive_failures == 1
        assert "b.yaml:2: no YAML" in status.last_error
        assert followed.source.unread == followed.source.faults == (status.last_error,)
        put(tmp_path / "b.yaml", service("b"))
        followed.look(3)
        assert followed.services.names == ["a", "b"]
        assert followed.partial == [True, False]
        assert status.consecutive_failures == 0
        assert followed.source.unread == ()

    def test_hands_over_the_rest_while_a_path_is_missing(self, tmp_path):
        put(tmp_path / "a.yaml", service("a"))
        followed = Followed(tmp_path / "a.yaml", tmp_path / "b.yaml").look(3)
        assert followed.partial == [True]
        assert followed.source.unread == (f"{tmp_path}/b.yaml: No such file or directory",)
        put(tmp_path / "b.yaml", service("b"))
        assert followed.look(3).services.names == ["a", "b"]
        assert followed.partial == [True, False]

    def test_of_an_empty_folder_is_a_partial_one(self, tmp_path):
        followed = Followed(tmp_path).look()
        assert followed.source.has_synced
        assert followed.services.calls == [("replace", [])]
        assert followed.partial == [True]
        assert "no manifests in this folder" in followed.source.faults[0]
        assert followed.source.unread == followed.source.faults
        put(tmp_path / "a.yaml", service("a"))
        assert followed.look(3).services.names == ["a"]
        assert followed.partial == [True, False]

    def test_of_a_file_that_is_being_written_is_a_partial_one(self, tmp_path):
        path = put(tmp_path / "a.yaml", service("a"))
        with path.open("a"):
            followed = Followed(tmp_path).look()
            assert followed.services.names == []
            assert followed.source.unread == (f"{path}: is being written",)
        assert followed.look(3).services.names == ["a"]
        assert followed.partial == [True, False]

    def test_is_a_partial_one_until_the_files_have_stayed_the_same_for_a_second(self, tmp_path):
        put(tmp_path / "a.yaml", service("a"))
        followed = Followed(tmp_path).look(2)
        assert followed.source.has_synced
        assert followed.source.unread == ()
        assert followed.partial == [True]
        assert followed.look().partial == [True, False]

    def test_of_a_file_that_is_only_half_written_is_a_partial_one_until_it_is_written(self, tmp_path):
        path = put(tmp_path / "a.yaml", service("a"))
        followed = Followed(tmp_path).look(2)
        put(path, service("a"), service("b"))
        assert followed.look(2).partial == [True]
        assert followed.look().services.names == ["a", "b"]
        assert followed.partial == [True, False]

    def test_without_a_file_that_is_back_at_once_is_a_partial_one_until_then(self, tmp_path):
        put(tmp_path / "a.yaml", service("a"))
        followed = Followed(tmp_path).look()
        put(tmp_path / "b.yaml", service("b"))
        assert followed.look(2).partial == [True]
        assert followed.look().services.names == ["a", "b"]
        assert followed.partial == [True, False]

    def test_is_a_partial_one_for_a_second_more_after_a_file_was_replaced(self, tmp_path):
        path = put(tmp_path / "a.yaml", service("a"))
        followed = Followed(tmp_path).look()
        replace(path, service("a"), service("b"))
        for _ in range(2):
            followed.clock.now += 0.2
            followed.source.look()
        assert followed.services.names == ["a", "b"]
        followed.clock.now += 0.9
        followed.source.look()
        assert followed.partial == [True]
        assert followed.look().partial == [True, False]

    @pytest.mark.parametrize("words", [{"spec": {"ports": 7}}, {"kind": "Servce"}])
    def test_of_an_object_that_cannot_be_used_is_a_partial_one(self, tmp_path, words):
        path = put(tmp_path / "a.yaml", service("a"), service("b") | words)
        followed = Followed(tmp_path).begin()
        assert followed.services.names == ["a"]
        assert followed.source.faults == ()
        assert len(followed.source.unread) == 1
        assert "Service default/b: " in followed.source.unread[0]
        assert followed.partial == [True]
        replace(path, service("a"))
        followed.look(2)
        assert followed.source.unread == ()
        assert followed.partial == [True, False]


class TestChanges:
    def test_only_differences_are_handed_over(self, tmp_path):
        path = put(tmp_path / "a.yaml", service("a"), service("b"), service("c"))
        followed = Followed(path).begin()
        replace(path, service("a"), service("b", cluster_ip="10.96.0.99"), service("d"))
        followed.look(2)
        assert followed.services.calls[1:] == [("upsert", "b"), ("upsert", "d"), ("delete", "c")]
        assert followed.look(3).services.calls[4:] == []

    def test_in_place_are_taken_when_they_have_stayed_the_same_for_a_second(self, tmp_path):
        path = put(tmp_path / "a.yaml", service("a"))
        followed = Followed(path).begin()
        put(path, service("longer-name"))
        assert followed.look(2).services.names == ["a"]
        assert followed.look().services.names == ["longer-name"]

    def test_that_go_on_are_waited_for(self, tmp_path):
        path = put(tmp_path / "a.yaml", service("a"))
        followed = Followed(path).begin()
        for length in range(1, 5):
            put(path, service("b" * length))
            followed.look(2)
        assert followed.services.names == ["a"]
        assert followed.look().services.names == ["bbbb"]

    def test_are_waited_for_while_a_program_has_the_file_open_for_writing(self, tmp_path):
        # (kubectl get services -o yaml; echo ---; kubectl get endpointslices -o yaml) > a.yaml, on a slow server.
        path = put(tmp_path / "a.yaml", service("a"), endpoint_slice("a-1"))
        followed = Followed(path).begin()
        with path.open("w") as writer:
            writer.write(json.dumps(service("a")))
            writer.flush()
            assert followed.look(9).slices.names == ["a-1"]
            assert followed.source.faults == (f"{path}: is being written",)
            writer.write(json.dumps(endpoint_slice("a-2")))
        assert followed.look(3).slices.names == ["a-2"]
        assert followed.source.faults == ()

    def test_are_not_waited_for_for_ever(self, tmp_path):
        path = put(tmp_path / "a.yaml", service("a"))
        followed = Followed(path).begin()
        with path.open("w") as writer:
            writer.write(json.dumps(service("b")))
            writer.flush()
            assert followed.look(60).services.names == ["a"]
            assert followed.look().services.names == ["b"]

    def test_by_renaming_are_taken_at_the_second_look(self, tmp_path):
        path = put(tmp_path / "a.yaml", service("a"))
        followed = Followed(path).begin()
        replace(path, service("b"))
        assert followed.look().services.names == ["a"]
        assert followed.look().services.names == ["b"]

    def test_of_a_file_that_is_removed_and_written_anew_are_waited_for(self, tmp_path):
        path = put(tmp_path / "a.yaml", service("a"))
        followed = Followed(path).begin()
        path.rename(tmp_path / "a.bak")
        put(path, service("b"))
        followed.look()
        put(path, service("b"), service("c"))
        assert followed.look(2).services.names == ["a"]
        assert followed.look().services.names == ["b", "c"]

    def test_by_a_symlink_swap_are_taken_at_the_second_look(self, tmp_path):
        # As kubelet updates a ConfigMap volume: a.yaml -> ..data/a.yaml, ..data -> a dated folder.
        for day, name in (("..1", "a"), ("..2", "b")):
            (tmp_path / day).mkdir()
            put(tmp_path / day / "a.yaml", service(name))
        (tmp_path / "..data").symlink_to("..1")
        (tmp_path / "a.yaml").symlink_to("..data/a.yaml")
        followed = Followed(tmp_path).begin()
        (tmp_path / "..tmp").symlink_to("..2")
        (tmp_path / "..tmp").rename(tmp_path / "..data")
        assert followed.look(2).services.names == ["b"]

    def test_of_a_new_file_in_a_folder(self, tmp_path):
        put(tmp_path / "a.yaml", service("a"))
        followed = Followed(tmp_path).begin()
        put(tmp_path / "b.yaml", service("b"))
        assert followed.look(2).services.names == ["a"]
        assert followed.look().services.names == ["a", "b"]

    def test_a_file_that_leaves_a_folder_is_gone_after_a_second(self, tmp_path):
        put(tmp_path / "a.yaml", service("a"))
        put(tmp_path / "b.yaml", service("b"))
        followed = Followed(tmp_path).begin()
        (tmp_path / "b.yaml").unlink()
        assert followed.look(2).services.names == ["a", "b"]
        assert followed.look().services.names == ["a"]

    def test_an_object_that_moves_to_another_file_is_never_gone(self, tmp_path):
        old = put(tmp_path / "a.yaml", service("a"), service("moved"))
        new = put(tmp_path / "b.yaml", service("b"))
        followed = Followed(tmp_path).begin()
        put(old, service("a"))
        followed.look(2)
        put(new, service("b"), service("moved"))
        followed.look(8)
        assert followed.services.names == ["a", "b", "moved"]
        assert ("delete", "moved") not in followed.services.calls
        put(new, service("b"))
        assert followed.look(3).services.names == ["a", "b"]

    def test_a_twin_that_goes_uncovers_the_other(self, tmp_path):
        put(tmp_path / "a.yaml", service("web", cluster_ip="10.96.0.1"))
        put(tmp_path / "b.yaml", service("web", cluster_ip="10.96.0.2"))
        followed = Followed(tmp_path).begin()
        (tmp_path / "b.yaml").unlink()
        followed.look(3)
        assert followed.services.objects["default", "web"].spec.cluster_ip == "10.96.0.1"


class TestTrouble:
    def test_a_file_that_breaks_keeps_its_last_content(self, tmp_path):
        path = put(tmp_path / "a.yaml", service("a"))
        put(tmp_path / "b.yaml", service("b"))
        followed = Followed(tmp_path).begin()
        path.write_text('{"kind": "List", "items": [')
        assert followed.look(3).services.names == ["a", "b"]
        assert "a.yaml" in followed.source.statuses["services"].last_error
        put(path, service("c"))
        assert followed.look(3).services.names == ["b", "c"]

    def test_nothing_is_taken_away_while_a_file_is_broken(self, tmp_path):
        path = put(tmp_path / "a.yaml", service("a"))
        put(tmp_path / "b.yaml", service("b"), service("b2"))
        put(tmp_path / "c.yaml", service("c"))
        followed = Followed(tmp_path).begin()
        path.write_text('{"kind": "List", "items": [')
        (tmp_path / "c.yaml").unlink()
        replace(tmp_path / "b.yaml", service("b", cluster_ip="10.96.0.99"))
        assert followed.look(5).services.names == ["a", "b", "b2", "c"]
        assert followed.services.objects["default", "b"].spec.cluster_ip == "10.96.0.99"
        replace(path, service("a"))
        assert followed.look(2).services.names == ["a", "b"]

    @pytest.mark.parametrize("content", ["", "\n  \n"])
    def test_an_empty_file_is_taken_for_one_that_is_being_written(self, tmp_path, content):
        path = put(tmp_path / "a.yaml", service("a"))
        followed = Followed(path).begin()
        path.write_text(content)
        assert followed.look(5).services.names == ["a"]
        assert followed.source.faults == (f"{path}: is empty, as a file that is being written",)
        assert followed.source.unread == ()
        put(path, service("b"))
        assert followed.look(3).services.names == ["b"]
        assert followed.source.faults == ()

    def test_a_file_that_says_that_there_is_nothing_is_believed(self, tmp_path):
        path = put(tmp_path / "a.yaml", service("a"))
        followed = Followed(path).begin()
        path.write_text("# nothing\n")
        assert followed.look(3).services.names == []

    def test_a_folder_that_is_emptied_keeps_its_last_content(self, tmp_path):
        put(tmp_path / "a.yaml", service("a"))
        put(tmp_path / "b.yaml", service("b"))
        followed = Followed(tmp_path).begin()
        (tmp_path / "a.yaml").unlink()
        followed.look()
        (tmp_path / "b.yaml").unlink()
        assert followed.look(5).services.names == ["a", "b"]
        assert "no manifests in this folder" in followed.source.faults[0]
        put(tmp_path / "c.yaml", service("c"))
        assert followed.look(3).services.names == ["c"]

    def test_a_link_that_dangles_for_a_while_is_read_again(self, tmp_path):
        put(tmp_path / "a.there", service("a"))
        (tmp_path / "a.yaml").symlink_to("a.there")
        followed = Followed(tmp_path).begin()
        (tmp_path / "a.there").rename(tmp_path / "a.away")
        assert followed.look(3).services.names == ["a"]
        assert "No such file" in followed.source.faults[0]
        (tmp_path / "a.away").rename(tmp_path / "a.there")
        followed.look(3)
        assert followed.source.faults == ()

    def test_a_named_file_or_folder_that_vanishes_keeps_its_last_content(self, tmp_path):
        folder = tmp_path / "folder"
        folder.mkdir()
        put(folder / "a.yaml", service("a"))
        path = put(tmp_path / "b.yaml", service("b"))
        followed = Followed(folder, path).begin()
        path.unlink()
        (folder / "a.yaml").unlink()
        folder.rmdir()
        assert followed.look(3).services.names == ["a", "b"]
        assert followed.source.statuses["services"].consecutive_failures >= 1

    def test_an_object_that_breaks_keeps_its_last_state(self, tmp_path):
        path = put(tmp_path / "a.yaml", service("a"), service("b"))
        followed = Followed(path).begin()
        replace(path, service("a", spec={"ports": 7}), service("b"), service("c"))
        followed.look(2)
        assert followed.services.names == ["a", "b", "c"]
        assert followed.services.objects["default", "a"].spec.ports[0].port == 80
        assert followed.source.statuses["services"].bad_objects == 1
        assert followed.source.statuses["nodes"].bad_objects == 0
        replace(path, service("b"))
        assert followed.look(2).services.names == ["b"]

    @pytest.mark.parametrize("spec", [{"ports": 7}, {"ports": [{"port": 80}]}])
    def test_an_object_that_cannot_be_used_is_noted_as_long_as_that_lasts(self, tmp_path, spec):
        path = put(tmp_path / "a.yaml", service("a"), service("b"))
        followed = Followed(path).begin()
        bad, new = service("a"), service("new")
        bad["spec"] = new["spec"] = spec
        for _ in range(2):
            replace(path, bad, new)
            followed.look(2)
            assert followed.services.objects["default", "a"].spec.cluster_ip == "10.96.0.10"
            notes = followed.source.notes
            assert [note.rpartition("; ")[2] for note in notes] == ["its last good state stays", "it is not served"]
            assert "Service default/a: spec." in notes[0]
        assert ("delete", "b") in followed.services.calls
        assert followed.source.unread == followed.source.faults == ()
        replace(path, service("a"))
        followed.look(2)
        assert followed.source.notes == ()

    @pytest.mark.parametrize(
        "unnamed", [[1], {"metadata": {"name": "b"}}, service("b", metadata={"name": ""}), {"kind": "Servce"}]
    )
    def test_what_has_no_kind_or_name_keeps_all_that_the_file_held(self, tmp_path, unnamed):
        path = put(tmp_path / "a.yaml", service("a"), service("b"))
        followed = Followed(path).begin()
        replace(path, service("new"), unnamed)
        assert followed.look(5).services.names == ["a", "b", "new"]
        assert len(followed.source.faults) == 1
        assert followed.source.unread == ()
        replace(path, service("new"))
        assert followed.look(2).services.names == ["new"]
        assert followed.source.faults == ()

    def test_what_has_no_name_at_the_start_leaves_it_partial(self, tmp_path):
        put(tmp_path / "a.yaml", service("a"), service("b", metadata={"name": ""}))
        followed = Followed(tmp_path).begin()
        assert followed.services.names == ["a"]
        assert followed.source.unread == followed.source.faults != ()
        assert followed.partial == [True]

    def test_an_object_in_two_files_is_noted_and_told_again_when_one_of_them_changes(self, tmp_path):
        put(tmp_path / "a.yaml", service("web"))
        put(tmp_path / "b.yaml", service("web"))
        put(tmp_path / "c.yaml", service("c"))
        with capture_logs() as logged:
            followed = Followed(tmp_path).begin()
            notes = followed.source.notes
            assert "Service default/web is also in" in notes[0]
            for name, times in (("c.yaml", 1), ("a.yaml", 2)):
                replace(tmp_path / name, service("c"), service("web"))
                followed.look(2)
                told = [line for line in logged if line["event"] == "manifest problem" and line["problem"] == notes[0]]
                assert len(told) == times
        (tmp_path / "b.yaml").unlink()
        (tmp_path / "c.yaml").unlink()
        followed.look(3)
        assert followed.source.notes == ()

    def test_many_objects_are_noted_by_their_number(self, tmp_path):
        put(tmp_path / "a.yaml", *(service(f"a{number}", spec={"clusterIP": ""}) for number in range(25)))
        notes = Followed(tmp_path).begin().source.notes
        assert len(notes) == 21
        assert notes[-1] == "and 5 more, see the log"

    def test_a_pipe_or_device_in_the_folder_is_named_and_not_opened(self, tmp_path):
        put(tmp_path / "a.yaml", service("a"))
        os.mkfifo(tmp_path / "b.yaml")
        (tmp_path / "c.yaml").symlink_to("/dev/zero")
        followed = Followed(tmp_path).begin()
        assert followed.services.names == ["a"]
        assert followed.source.faults == tuple(
            f"{tmp_path}/{name}.yaml: is no regular file, and is not read" for name in "bc"
        )
        (tmp_path / "b.yaml").unlink()
        (tmp_path / "c.yaml").unlink()
        followed.look(3)
        assert followed.source.faults == ()

    def test_in_the_thread_is_told(self, tmp_path):
        class Broken(Receiver):
            def replace(self, objects):
                raise RuntimeError("a bug")

        crashed = []
        put(tmp_path / "a.yaml", service("a"))
        source = ManifestSource([str(tmp_path)], Handlers(Broken(), Broken(), Broken()), on_crash=crashed.append)
        source.start()
        source._thread.join(10)
        assert [str(error) for error in crashed] == ["a bug"]


class TestTheThread:
    def test_looks_twice_a_second_and_sooner_while_it_waits_for_a_second_look(self, tmp_path):
        path = put(tmp_path / "a.yaml", service("a"))
        followed = Followed(path)
        sleeps = []

        def sleep(seconds):
            sleeps.append(seconds)
            if len(sleeps) == 7:
                put(path, service("longer-name"))
            followed.clock.now += seconds
            if len(sleeps) == 14:
                followed.source.stop(0)

        followed.source._sleep = sleep
        followed.source.run()
        assert sleeps == [0.2] * 5 + [0.5] * 2 + [0.2] * 5 + [0.5] * 2
        assert followed.services.names == ["longer-name"]

    def test_stops_when_told_to(self, tmp_path):
        put(tmp_path / "a.yaml", service("a"))
        source = ManifestSource([str(tmp_path)], Handlers(Receiver(), Receiver(), Receiver()))
        source.start()
        source.stop(10)
        assert not source._thread.is_alive()

    def test_that_hangs_is_told(self, tmp_path):
        put(tmp_path / "a.yaml", service("a"))
        followed = Followed(tmp_path).begin()
        followed.clock.now += 61
        assert followed.source.unread == ("no look at the files for 61 s, reading one hangs",)
        assert followed.look().source.unread == ()

    def test_says_how_it_is(self, tmp_path):
        put(tmp_path / "a.yaml", service("a"))
        followed = Followed(tmp_path).begin()
        followed.clock.now += 3
        assert followed.source.statuses["services"].watch_age == 3.0
