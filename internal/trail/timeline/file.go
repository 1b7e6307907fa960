package timeline

import (
	"errors"
	"fmt"
	"os"
)

// create begins an empty file of sentences. One that an earlier process has left says nothing: a
// start reads all of the trail.
func (x *Index) create() error {
	if x.file != nil {
		return nil
	}
	file, err := os.OpenFile(x.path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("make the index of the audit trail: %w", err)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.file = file
	return nil
}

// closeFile ends the use of the file.
func (x *Index) closeFile() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.file != nil {
		_ = x.file.Close() // nobody reads it again
		x.file, x.reached, x.err = nil, -1, errors.New("the relay is shutting down")
		x.tell()
	}
}

// flush writes the sentences of the pending rows, and then adds the rows to the table. After a failed
// write the next one writes over it.
func (x *Index) flush() error {
	var text []byte
	for i := range x.pending {
		text = append(text, x.pending[i].text...)
	}
	if _, err := x.file.WriteAt(text, x.end); err != nil {
		return fmt.Errorf("write the index of the audit trail: %w", err)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for i := range x.pending {
		x.rows.take(&x.pending[i], x.end)
		x.end += int64(len(x.pending[i].text))
	}
	x.pending = x.pending[:0]
	x.tell()
	return nil
}
