package cloudevents

import (
	"errors"
	"fmt"
	"iter"

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
