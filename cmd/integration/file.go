package main

import (
	"context"
	"fmt"

	"github.com/auditrelay/auditrelay/internal/testbed/readback"
)

func startFile(_ context.Context, s *session) (*place, error) {
	return &place{targets: []target{fileTarget("file", s.folder("events.jsonl"))}}, nil
}

func fileTarget(name, path string) target {
	file := &readback.File{Path: path}
	return target{
		name: name, sink: "file",
		section: fmt.Sprintf("file: {path: %q, rotate_bytes: -1}", path),
		read:    readerOf(file),
	}
}

// readerOf reads the ids back of a destination.
func readerOf(d readback.Destination) func(context.Context, func(id string)) error {
	return func(ctx context.Context, add func(id string)) error {
		return d.Read(ctx, func(id string, _ []byte) { add(id) })
	}
}
