"""Ask a real yaml-language-server what it makes of documents with our schema, as an editor does.

    python compat_tests/cli/editor/language_server.py PATH/TO/yaml-language-server

It has to underline the lines that ``scalekeeper validate`` refuses; and it has to offer names.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

import scalekeeper

MODELINE = "# yaml-language-server: $schema=train.schema.json\n"
# text → the lines, from 0, that are wrong
DOCUMENTS = {
    "optimizer: adam\nloss_scale: dynamic\n": [],
    "optimizer: {name: sgd, learning_rate: 0.1, momentum: 0.9}\nloss_scale: 1024\n": [],
    "optimizer: adam\nloss_scale: {name: dynamic, increment_period: 500}\nstop_after_skips: 10\n": [],
    "optimizer: adam\nloss_scale: dynamo\n": [2],
    "optimizer:\n  name: adam\n  momentun: 0.9\n": [3],
    "optimizer: adam\nloss_scale:\n  name: dynamic\n  increment_period: -5\n": [4],
    "optimiser: adam\n": [1],
}
# text with a place for the cursor → what has to be among the offers
COMPLETIONS = {
    "optimizer: |": {"adam", "sgd"},
    "optimizer: adam\nloss_scale:\n  name: |": {"dynamic", "log_max", "dynamic/pytorch"},
    "optimizer: adam\n|": {"loss_scale", "skipped_steps", "stop_after_skips"},
}


class Server:
    """The server as a process, and its protocol: JSON with a header, to and fro."""

    def __init__(self, command):
        self.process = subprocess.Popen([command, "--stdio"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.number = 0
        self.found = {}

    def send(self, method, parameters, is_question=False):
        message = {"jsonrpc": "2.0", "method": method, "params": parameters}
        if is_question:
            self.number += 1
            message["id"] = self.number
        self.write(message)
        return self.answer(self.number) if is_question else None

    def write(self, message):
        body = json.dumps(message).encode()
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        self.process.stdin.flush()

    def receive(self):
        size = 0
        for line in iter(self.process.stdout.readline, b"\r\n"):
            if not line:
                raise SystemExit("the server has ended")
            name, _, value = line.partition(b":")
            size = int(value) if name.lower() == b"content-length" else size
        message = json.loads(self.process.stdout.read(size).decode())
        if message.get("method") == "textDocument/publishDiagnostics":
            self.found[message["params"]["uri"]] = message["params"]["diagnostics"]
        elif "method" in message and "id" in message:  # it asks us, such as for settings: there are none
            asked = message["params"].get("items", []) if isinstance(message.get("params"), dict) else []
            self.write({"jsonrpc": "2.0", "id": message["id"], "result": [None for _ in asked]})
        return message

    def answer(self, number):
        while True:
            message = self.receive()
            if message.get("id") == number and "method" not in message:
                return message.get("result")

    def opened(self, path):
        """Return what the server underlines in a file."""
        document = {"uri": path.as_uri(), "languageId": "yaml", "version": 1, "text": path.read_text("utf-8")}
        self.send("textDocument/didOpen", {"textDocument": document})
        while path.as_uri() not in self.found:
            self.receive()
        return self.found[path.as_uri()]

    def offers(self, path, line, character):
        place = {"textDocument": {"uri": path.as_uri()}, "position": {"line": line, "character": character}}
        answer = self.send("textDocument/completion", place, is_question=True)
        return {item["label"] for item in answer["items"]}


def is_valid(path):
    try:
        scalekeeper.load_document(str(path), target="2.21")
    except scalekeeper.DocumentError:
        return False
    return True


def main(command):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name).resolve()
        schema = str(folder / "train.schema.json")
        command_line = [sys.executable, "-m", "scalekeeper", "schema", "--target", "2.21", "--output", schema]
        subprocess.run(command_line, check=True, stdout=subprocess.DEVNULL)
        server = Server(command)
        server.send("initialize", {"processId": os.getpid(), "rootUri": folder.as_uri(), "capabilities": {}}, True)
        server.send("initialized", {})
        settings = {"yaml": {"validate": True, "completion": True, "schemaStore": {"enable": False}}}
        server.send("workspace/didChangeConfiguration", {"settings": settings})
        for number, (text, wrong) in enumerate(DOCUMENTS.items()):
            path = folder / f"document{number}.yaml"
            path.write_text(MODELINE + text, "utf-8")
            lines = sorted({each["range"]["start"]["line"] for each in server.opened(path)})
            assert lines == wrong, (text, server.found[path.as_uri()])
            assert is_valid(path) is (wrong == []), text
        for number, (text, expected) in enumerate(COMPLETIONS.items()):
            path = folder / f"begun{number}.yaml"
            path.write_text(MODELINE + text.replace("|", ""), "utf-8")
            server.opened(path)
            before = (MODELINE + text.partition("|")[0]).split("\n")
            offers = server.offers(path, len(before) - 1, len(before[-1]))
            assert expected <= offers, (text, sorted(offers))
        server.process.kill()
    print(f"{len(DOCUMENTS)} documents are judged as validate judges them, {len(COMPLETIONS)} are completed")


if __name__ == "__main__":
    main(sys.argv[1])
