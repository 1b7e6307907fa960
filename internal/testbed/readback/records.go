package readback

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/klauspost/compress/gzip"

	"github.com/auditrelay/auditrelay/internal/routing/cloudevents"
)

// Record is an event in a file of the file sink.
type Record struct {
	// Attributes are the CloudEvents attributes by name, including datacontenttype.
	Attributes map[string]string
	// Body is the event's body, byte for byte as it was delivered.
	Body []byte
}

// ID is the event's CloudEvents id.
func (r *Record) ID() string { return r.Attributes["id"] }

// Records yields all records of a file sink with this path, in order: those of the rotated files,
// compressed or not, oldest first, and then those of the file itself. A last line without a
// newline is left out, as it may still be being written. For a line that is no event it yields
// an error with the file and the number of the line, and goes on after it. Files must not be
// rotated meanwhile.
func Records(path string) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		names, err := Files(path)
		if err != nil {
			yield(Record{}, err)
			return
		}
		for _, name := range names {
			if !readFile(name, yield) {
				return
			}
		}
	}
}

// Files returns the names of the files of a sink with this path, oldest first: the rotated
// ones, which may have been compressed by the time they are opened (NAME.gz instead of NAME),
// and path itself, which may be missing.
func Files(path string) ([]string, error) {
	path = filepath.Clean(path)
	ext := filepath.Ext(path)
	rotated := strings.TrimSuffix(path, ext) + "-????????T??????.?????????Z" + ext
	names, err := filepath.Glob(rotated)
	if err != nil {
		return nil, err
	}
	packed, err := filepath.Glob(rotated + packedExt)
	for _, name := range packed {
		names = append(names, strings.TrimSuffix(name, packedExt))
	}
	slices.Sort(names)
	return append(slices.Compact(names), path), err
}

const packedExt = ".gz"

// openFile opens a file, compressed or not. It tries the plain form first, since the compressed
// one is made before the plain one is removed.
func openFile(name string) (io.ReadCloser, error) {
	f, err := os.Open(name)
	if !errors.Is(err, fs.ErrNotExist) {
		return f, err
	}
	packed, err := os.Open(name + packedExt)
	if err != nil {
		return nil, err
	}
	unpacker, err := gzip.NewReader(packed)
	if err != nil {
		_ = packed.Close() // it was only read
		return nil, fmt.Errorf("%s: %w", packed.Name(), err)
	}
	return unpacked{unpacker, packed}, nil
}

// unpacked reads a compressed file.
type unpacked struct {
	io.Reader
	io.Closer
}

func readFile(name string, yield func(Record, error) bool) bool {
	f, err := openFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return true // it was just rotated, or nothing was written yet
	}
	if err != nil {
		return yield(Record{}, fmt.Errorf("read events: %w", err))
	}
	defer func() { _ = f.Close() }()
	r := bufio.NewReaderSize(f, 256<<10)
	for number := 1; ; number++ {
		line, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return true
		}
		if err != nil {
			return yield(Record{}, fmt.Errorf("read %s: %w", name, err))
		}
		record, err := ParseLine(line)
		if err != nil {
			err = fmt.Errorf("read %s, line %d: %w", name, number, err)
		}
		if !yield(record, err) {
			return false
		}
	}
}

// ParseLine reads a line of the sink.
func ParseLine(line []byte) (Record, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(line, &members); err != nil {
		return Record{}, fmt.Errorf("parse event: %w", err)
	}
	if members == nil {
		return Record{}, errors.New("parse event: it is null")
	}
	r := Record{Attributes: make(map[string]string, len(members))}
	for name, raw := range members {
		if name == "data" || name == "data_base64" {
			continue
		}
		var value string
		if err := json.Unmarshal(raw, &value); err != nil {
			return Record{}, fmt.Errorf("parse attribute %q: %w", name, err)
		}
		r.Attributes[name] = value
	}
	var err error
	r.Body, err = parseBody(members, r.Attributes["datacontenttype"])
	return r, err
}

func parseBody(members map[string]json.RawMessage, contentType string) ([]byte, error) {
	if raw, ok := members["data_base64"]; ok {
		var text string
		if err := json.Unmarshal(raw, &text); err != nil {
			return nil, fmt.Errorf("parse data_base64: %w", err)
		}
		body, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return nil, fmt.Errorf("parse data_base64: %w", err)
		}
		return body, nil
	}
	raw, ok := members["data"]
	if !ok || cloudevents.DeclaresJSON(contentType) {
		return raw, nil
	}
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		return nil, fmt.Errorf("parse data: %w", err)
	}
	return []byte(text), nil
}
