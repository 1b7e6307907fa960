package cloudevents

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/auditrelay/auditrelay/internal/jsontext"
	"github.com/auditrelay/auditrelay/relay"
)

// BatchMediaType is the content type of a [Batch].
const BatchMediaType = "application/cloudevents-batch+json"

// Batch writes the JSON batch format of CloudEvents 1.0.2, section 4: an array of events in
// the JSON event format. The zero value is empty.
type Batch struct {
	encoder Encoder
	text    []byte // the array without its end
}

// maxKept bounds the memory of an empty Batch, in bytes.
const maxKept = 2 << 20

// Reset empties b. It keeps the memory, unless one large event took too much.
func (b *Batch) Reset() {
	if cap(b.text) > maxKept {
		b.text = nil
	}
	b.text = b.text[:0]
}

// Add adds e. If the text would then be longer than most bytes, Add leaves e out and returns
// false. It always takes the first event.
func (b *Batch) Add(e *relay.Event, most int) bool {
	before := len(b.text)
	separator := byte(',')
	if before == 0 {
		separator = '['
	}
	b.text = b.encoder.Append(append(b.text, separator), e)
	if before > 0 && len(b.text)+len("]") > most {
		b.text = b.text[:before]
		return false
	}
	return true
}

// Text returns the array of a batch with at least one event. It is valid until the next
// Reset or Add.
func (b *Batch) Text() []byte {
	end := len(b.text)
	b.text = append(b.text, ']')
	text := b.text
	b.text = text[:end]
	return text
}

var errEnough = errors.New("no more events are wanted")

// Split yields the text of each event in a batch, as a part of the given text. It ends at the
// first fault with an error, after it has yielded the events before it.
func Split(batch []byte) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		var scan jsontext.Scanner
		scan.Reset(batch)
		err := scan.Array(func(int) error {
			scan.Peek()
			from := scan.Pos()
			err := scan.Skip()
			if err == nil && !yield(batch[from:scan.Pos()], nil) {
				return errEnough
			}
			return err
		})
		if err == nil {
			err = scan.End()
		}
		if err != nil && !errors.Is(err, errEnough) {
			yield(nil, fmt.Errorf("read the batch of CloudEvents: %w", err))
		}
	}
}

// envelope has the members that ParseJSON reads; it ignores other extensions.
type envelope struct {
	SpecVersion     string          `json:"specversion"`
	ID              string          `json:"id"`
	Source          string          `json:"source"`
	Type            string          `json:"type"`
	Subject         string          `json:"subject"`
	Time            time.Time       `json:"time"`
	Received        time.Time       `json:"receivedtime"`
	Project         string          `json:"project"`
	Environment     string          `json:"environment"`
	DataContentType string          `json:"datacontenttype"`
	Data            json.RawMessage `json:"data"`
	DataBase64      []byte          `json:"data_base64"`
}

// ErrAmbiguous marks a CloudEvent that readers understand differently: one of its names stands
// there twice, or again in other letters, so that some readers see another value than ParseJSON.
var ErrAmbiguous = errors.New("readers may understand it differently")

// ParseJSON reads one event in the form of [AppendJSON], and gives its body back byte for byte.
// It cannot do that for an event that another program has rewritten. One that other readers may
// understand differently is an error, ErrAmbiguous.
func ParseJSON(text []byte) (relay.Event, error) {
	var in envelope
	d := json.NewDecoder(bytes.NewReader(text))
	if err := d.Decode(&in); err != nil {
		return relay.Event{}, fmt.Errorf("read the CloudEvent: %w", err)
	}
	if err := checkNames(text); err != nil {
		return relay.Event{}, fmt.Errorf("read the CloudEvent: %w", err)
	}
	if d.More() {
		return relay.Event{}, errors.New("read the CloudEvent: more follows after it; give one event alone")
	}
	switch {
	case in.SpecVersion != relay.SpecVersion:
		return relay.Event{}, fmt.Errorf("read the CloudEvent: its specversion is %q, not %q", in.SpecVersion, relay.SpecVersion)
	case in.ID == "" || in.Source == "":
		return relay.Event{}, errors.New("read the CloudEvent: it has no id, or no source")
	case in.Data != nil && in.DataBase64 != nil:
		return relay.Event{}, errors.New("read the CloudEvent: it has both data and data_base64")
	}
	e := relay.Event{
		ID: in.ID, Source: in.Source, Type: in.Type, Subject: in.Subject, Time: in.Time, Received: in.Received,
		Project: in.Project, Environment: in.Environment, ContentType: in.DataContentType, Body: in.DataBase64,
	}
	if in.Data == nil {
		return e, nil
	}
	if e.Body = in.Data; DeclaresJSON(in.DataContentType) {
		return e, nil
	}
	var body string
	if err := json.Unmarshal(in.Data, &body); err != nil {
		return relay.Event{}, fmt.Errorf("read the CloudEvent: its data is no JSON string, as its content type %q asks for", in.DataContentType)
	}
	e.Body = []byte(body)
	return e, nil
}

// members are the names that ParseJSON reads.
var members = []string{
	"specversion", "id", "source", "type", "subject", "time", "receivedtime", "project", "environment", "datacontenttype", "data", "data_base64",
}

// checkNames refuses an object in which a member that ParseJSON reads is spelled otherwise, or
// stands twice, and a text that not all readers take.
func checkNames(text []byte) error {
	var scan jsontext.Scanner
	scan.Reset(text)
	var seen [16]bool // by its place among members
	err := scan.Object(func(key jsontext.Raw) error {
		if err := checkName(key, &seen); err != nil {
			return err
		}
		return scan.Skip()
	})
	if err != nil {
		return fmt.Errorf("%w: %w", ErrAmbiguous, err)
	}
	return nil
}

func checkName(key jsontext.Raw, seen *[16]bool) error {
	name, err := key.AppendText(nil)
	if err != nil {
		return err
	}
	for i, known := range members {
		switch {
		case !strings.EqualFold(string(name), known):
		case string(name) != known:
			return fmt.Errorf("its attribute %q is spelled %q", known, name)
		case seen[i]:
			return fmt.Errorf("its attribute %q stands there twice", known)
		default:
			seen[i] = true
		}
	}
	return nil
}
