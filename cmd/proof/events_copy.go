package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"

	"github.com/auditrelay/auditrelay/internal/routing/cloudevents"
	"github.com/auditrelay/auditrelay/internal/trail/eventproof"
)

// sinkCopy is the file sink's file, read as it grows.
type sinkCopy struct {
	path    string
	at      int64  // read up to this offset
	seen    []bool // by event
	missing int    // events not seen yet
	samples []int  // events, ascending
	kept    map[int]*kept
}

// kept is the line of a sample.
type kept struct {
	line []byte
	at   int64 // its offset
}

func newSinkCopy(path string, events int, samples []int) *sinkCopy {
	c := &sinkCopy{path: path, seen: make([]bool, events), missing: events, samples: samples, kept: map[int]*kept{}}
	for _, i := range samples {
		c.kept[i] = nil
	}
	return c
}

// samples are the events to prove: most are spread over the large pushes, and a quarter over
// the small ones. The first and the last event are among them.
func samples(events int) (all []int) {
	const small = provenEvents / 4
	const large = provenEvents - small
	first := firstSmall(events)
	for i := range large {
		all = append(all, i*(first-1)/(large-1))
	}
	for i := range small {
		all = append(all, first+i*(events-1-first)/(small-1))
	}
	return all
}

// read takes in the lines written since.
func (c *sinkCopy) read() error {
	f, err := os.Open(c.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // nothing is delivered yet
	}
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if _, err := f.Seek(c.at, io.SeekStart); err != nil {
		return err
	}
	r := bufio.NewReaderSize(f, 1<<20)
	for {
		line, err := r.ReadSlice('\n')
		if errors.Is(err, io.EOF) {
			return nil // a line without its end comes again
		}
		if err != nil {
			return fmt.Errorf("read the sink's file at %d: %w", c.at, err)
		}
		c.take(line)
		c.at += int64(len(line))
	}
}

// take records an event of the load; the relay's own events are skipped.
func (c *sinkCopy) take(line []byte) {
	digits, ours := bytes.CutPrefix(line, []byte(cloudevents.Start+idPrefix))
	if !ours || len(digits) < idDigits {
		return
	}
	i, err := strconv.Atoi(string(digits[:idDigits]))
	if err != nil || i >= len(c.seen) || c.seen[i] {
		return
	}
	c.seen[i], c.missing = true, c.missing-1
	if _, wanted := c.kept[i]; wanted {
		c.kept[i] = &kept{line: bytes.Clone(line), at: c.at}
	}
}

// within is a kept event received during a span, and not in its first or last moment; nil
// if there is none.
func (c *sinkCopy) within(s *eventproof.Span) *kept {
	for _, k := range c.kept {
		e, err := cloudevents.ParseJSON(k.line)
		if err == nil && e.Received.After(s.FirstReceived) && e.Received.Before(s.LastReceived) {
			return k
		}
	}
	return nil
}

// flip changes a digit in the body of an event, or changes it back.
func (c *sinkCopy) flip(k *kept) error {
	f, err := os.OpenFile(c.path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	at := k.at + int64(bytes.LastIndex(k.line, []byte(idPrefix))+len(idPrefix))
	digit := make([]byte, 1)
	if _, err := f.ReadAt(digit, at); err != nil {
		return err
	}
	digit[0] ^= 1
	_, err = f.WriteAt(digit, at)
	return err
}
