"""Have pre-commit run the hook of the checkout's last commit, on documents that are right, wrong, and not meant."""

import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 3))


def run(*command, folder, code=0):
    ended = subprocess.run(command, cwd=str(folder), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert ended.returncode == code, ended.stdout
    return ended.stdout


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        documents = {
            "good.scalekeeper.yaml": "optimizer: adam\n",
            "docker-compose.yaml": "services: {}\n",
            "bad.scalekeeper.yaml": "optimizer: adam\nloss_scale: dynamo\n",
        }
        for each, text in documents.items():
            (folder / each).write_text(text, "utf-8")
        run("git", "init", "--quiet", folder=folder)
        run("git", "add", "--all", folder=folder)
        hook = [sys.executable, "-m", "pre_commit", "try-repo", ROOT, "scalekeeper-validate", "--verbose", "--files"]
        good = run(*hook, "good.scalekeeper.yaml", "docker-compose.yaml", folder=folder)
        assert "good.scalekeeper.yaml: ok" in good, good
        assert "docker-compose" not in good, good
        bad = run(*hook, *documents, folder=folder, code=1)
        assert "bad.scalekeeper.yaml:2:13: loss_scale: unknown" in bad, bad
    print("the hook lets good documents pass, stops at bad ones, and leaves others alone")


if __name__ == "__main__":
    main()
