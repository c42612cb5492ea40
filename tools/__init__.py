"""One class per tool, and the one path every call takes: normalise, validate, veto, gate, run, audit."""
