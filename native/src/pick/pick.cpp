// Scans over a row of logits.
