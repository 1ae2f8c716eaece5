"""verse_chats.py - conversations about the book: a reference is asked for, and answered as Debian's `bible` prints it.

    verse_chats.py COUNT SEED >chats.jsonl
"""
import json
import random
import subprocess
import sys

BOOKS = {"Ge": "Genesis", "Exo": "Exodus", "Num": "Numbers", "Deu": "Deuteronomy", "1Sm": "1 Samuel", "2Ki": "2 Kings",
         "Psa": "Psalms", "Prv": "Proverbs", "Isa": "Isaiah", "Jer": "Jeremiah", "Eze": "Ezekiel", "Mat": "Matthew",
         "Luke": "Luke", "John": "John", "Acts": "Acts", "Rom": "Romans", "1Cor": "1 Corinthians", "Heb": "Hebrews"}
SYSTEM = "You quote the Bible."
WORDS = 12  # of a verse


def conversations(count, seed):
    """(reference as the answer begins, messages) of different verses, each with as many words."""
    book = subprocess.run(["bible", "-f", "gen1:1-rev22:21"], stdin=subprocess.DEVNULL, capture_output=True,
                          check=True).stdout.decode()
    lines = [line.split(" ", 1) for line in book.splitlines()]
    rng = random.Random(seed)
    rng.shuffle(lines)
    found = []
    for reference, verse in lines:
        short = reference.split(":")[0].rstrip("0123456789")
        words = verse.split()
        if short not in BOOKS or len(words) < WORDS:
            continue
        place = reference[len(short):]
        found.append((reference, [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": "Quote %s %s." % (BOOKS[short], place)},
            {"role": "assistant", "content": "%s %s" % (reference, " ".join(words[:WORDS]))}]))
        if len(found) == count:
            return found
    raise SystemExit("verse_chats: only %d verses, expected %d" % (len(found), count))


if __name__ == "__main__":
    for _, messages in conversations(int(sys.argv[1]), int(sys.argv[2])):
        print(json.dumps({"messages": messages}))
