"""The doctor's sentences, in English and Chinese: a finding is numbers until it is told."""

from anygrpo.doctor.words.tell import Told, number_text, tell, verdict_text

__all__ = ["Told", "number_text", "tell", "verdict_text"]
