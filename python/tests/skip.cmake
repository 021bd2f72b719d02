message("python: skipped, ${WHY}")
