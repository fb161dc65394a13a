"""Task files as records: texts with labels, words with tags, questions with answers, chats.

What is read is checked (a label that is no number, a word without its tag, an answer that does not
stand where it should), so that what is wrong with a file is said of the file and its line before
any work is done. A bad record is one InputError; with `skip` bad records are left out and counted
instead, in a warning of the logger `tinyfm.demos.records`, which Python prints to standard error by
default. Files are UTF-8, plain or `.gz`.
"""

from tinyfm.demos.records.chats import Chat, Message, read_chats
from tinyfm.demos.records.classification import Choice, Example, read_classification
from tinyfm.demos.records.questions import Answer, Question, read_questions
from tinyfm.demos.records.reading import Records
from tinyfm.demos.records.summaries import Summarized, read_summaries
from tinyfm.demos.records.tagging import TaggedWords, read_tagging
from tinyfm.demos.records.text_pairs import TextPair, read_text_pairs

__all__ = [
    "Answer",
    "Chat",
    "Choice",
    "Example",
    "Message",
    "Question",
    "Records",
    "Summarized",
    "TaggedWords",
    "TextPair",
    "read_chats",
    "read_classification",
    "read_questions",
    "read_summaries",
    "read_tagging",
    "read_text_pairs",
]
