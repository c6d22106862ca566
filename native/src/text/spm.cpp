// SentencePiece encoding over scores.
