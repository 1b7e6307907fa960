package waiting

import (
	"strings"
	"sync"
)

// Output is the output of a program, readable meanwhile. Its zero value is empty.
type Output struct {
	mu   sync.Mutex
	text strings.Builder // guarded by mu
}

// Write appends b.
func (o *Output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(b)
}

// String returns the whole output so far.
func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}
