"""Transcripts: commands to a part of the broker and all of its answers, as text files.

A file in ``ha``, ``store`` or ``session`` begins with a comment that states its purpose. Then come blocks: command
lines, a line ``----``, and the expected output up to the next empty line (a lone ``.`` stands for an empty line of
output). ``test_transcripts.py`` carries out the commands with the driver of the folder and compares the whole file.

``pytest --rewrite-transcripts broker/tests/transcripts`` (``make transcripts``) writes the output that the code gives
today into the files. The difference is then read like code: each changed line is a changed behaviour.
"""
