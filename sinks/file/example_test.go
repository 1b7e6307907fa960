package file_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/sinks/file"
)

// A Go program reads the events of a file sink, including those in rotated and compressed
// files.
func ExampleRead() {
	dir, _ := os.MkdirTemp("", "archive")
	defer func() { _ = os.RemoveAll(dir) }()
	path := filepath.Join(dir, "events.jsonl")
	sink := file.New(config.File{Path: path}, file.Options{})
	err := sink.Deliver(context.Background(), []relay.Event{
		{ID: "e-1", Source: relay.SourceOf("shop", "live"), Type: "event_log.login", ContentType: "text/plain", Body: []byte("a line")},
	})
	fmt.Println(err, sink.Close())

	for record, err := range file.Read(path) {
		fmt.Println(record.ID(), record.Attributes["type"], string(record.Body), err)
	}
	// Output:
	// <nil> <nil>
	// e-1 event_log.login a line <nil>
}
