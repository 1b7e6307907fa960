package verify

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/audit"
	"github.com/auditrelay/auditrelay/internal/cloudevents"
)

// nextLines reads some lines; the last one may have no end.
func nextLines(in *bufio.Reader) (lines [][]byte, err error) {
	for size := 0; len(lines) < lineBatch && size < batchBytes; {
		var text []byte
		for more := true; more; {
			part, err := in.ReadSlice('\n')
			text = append(text, part...)
			if more = errors.Is(err, bufio.ErrBufferFull); more && len(text) > maxEvent {
				return lines, fmt.Errorf("a line has more than %d bytes", maxEvent)
			}
			if err != nil && !more {
				if len(text) > 0 {
					lines = append(lines, text)
				}
				return lines, err
			}
		}
		lines = append(lines, text)
		size += len(text)
	}
	return lines, nil
}

// copiedEvent is an event's word on the trail.
type copiedEvent struct {
	wrong string // why the line is no event
	note  string // of a checkpoint
	entry bool
	place audit.Place
	leaf  tlog.Hash
	err   error // why the leaf is only stated
	fact  *fact
}

// readEvents decodes a line: an event, or an array of them, as in a record of the Kafka sink's
// mode batch. It leaves out all events without a word on the trail, and all but the first
// wrong one: a hostile array may have millions.
func readEvents(text []byte) (made []copiedEvent) {
	if !bytes.HasPrefix(bytes.TrimSpace(text), []byte("[")) {
		return []copiedEvent{readEvent(text)}
	}
	wrong := false
	for event, err := range cloudevents.Split(text) {
		one := readEvent(event)
		if err != nil {
			one.wrong = err.Error()
		}
		if one.entry || one.note != "" || one.wrong != "" && !wrong {
			made = append(made, one)
		}
		wrong = wrong || one.wrong != ""
	}
	return made
}

// Pushed reports whether events of a CloudEvents type were pushed. No such event is an
// entry, whatever its body says: entries are the relay's own.
func Pushed(kind string) bool {
	return kind == "event_log" || strings.HasPrefix(kind, "event_log.")
}

// readEvent decodes a line. Most are of the event stream, and are passed over fast.
func readEvent(text []byte) (made copiedEvent) {
	text = bytes.TrimSpace(text)
	if len(text) == 0 {
		return made
	}
	body := text
	if bytes.Contains(text, []byte(`"specversion"`)) {
		if e, err := cloudevents.ParseJSON(text); err == nil {
			if Pushed(e.Type) {
				return made
			}
			body = e.Body
		}
	}
	if !bytes.Contains(body, []byte(`"trail"`)) && !bytes.Contains(body, []byte(audit.TypeCheckpoint)) {
		if !json.Valid(body) {
			made.wrong = "it is no JSON"
		}
		return made
	}
	var of struct{ Type, Checkpoint string }
	if json.Unmarshal(body, &of) == nil && of.Type == audit.TypeCheckpoint {
		made.note = of.Checkpoint
		return made
	}
	var err error
	if made.place, err = audit.PlaceOfEvent(body); err != nil {
		if !errors.Is(err, audit.ErrNoEntry) {
			made.wrong = err.Error()
		}
		return made
	}
	made.entry = true
	made.leaf, made.err = audit.LeafHashOfEvent(body)
	if leaf, err := audit.LeafOfEvent(body); err == nil {
		if f, interesting := factOf(leaf); interesting {
			f.index = made.place.Index
			made.fact = &f
		}
	}
	return made
}
