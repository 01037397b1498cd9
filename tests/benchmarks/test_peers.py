import subprocess
from types import SimpleNamespace

from benchmarks.peers import install


def test_packages_are_installed_once_without_what_they_depend_on(tmp_path, monkeypatch, capsys):
    commands, broken = [], {"b==2"}

    def pip(command, check):
        commands.append(command)
        return SimpleNamespace(returncode=int(command[-1] in broken))

    monkeypatch.setattr(subprocess, "run", pip)
    folder = install(["b==2", "a==1"], tmp_path)
    assert "pip cannot install b==2" in capsys.readouterr().out
    assert [command[-1] for command in commands] == ["a==1", "b==2"]
    assert all("--no-deps" in command and str(folder) in command for command in commands)
    broken.clear()
    assert install(["a==1", "b==2"], tmp_path) == folder
    assert install(["a==1", "b==2"], tmp_path) == folder
    assert len(commands) == 4
    assert install(["a==1"], tmp_path) != folder
