package tiles

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"

	"github.com/auditrelay/auditrelay/internal/store/durable"
	"github.com/auditrelay/auditrelay/internal/trail/proof"
)

// lastLine is the newest whole line of the history. A crash may have left a part of a line
// after it, which cut removes. A lost history has the zero Line.
func (l Log) lastLine(cut bool) (proof.Line, error) {
	f, err := os.OpenFile(l.path(proof.HistoryFile), os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return proof.Line{}, nil
	}
	var last proof.Line
	if err == nil {
		defer func() { _ = f.Close() }() // nothing is buffered
		var end int64
		if last, end, err = newestLine(f); err == nil && cut {
			err = f.Truncate(end)
		}
	}
	if err != nil {
		return proof.Line{}, fmt.Errorf("read history of checkpoints: %w", err)
	}
	return last, nil
}

// mend leaves out the lines of the history that are not good, and puts others in between, in the order of
// their numbers. A crash leaves the one history or the other.
func (l Log) mend(publicKey string, lines []proof.Line) error {
	return durable.Replace(l.path(proof.HistoryFile), func(file io.Writer) error {
		w := bufio.NewWriter(file)
		newest := uint64(0)
		err := l.eachText(func(_ int, text []byte) error {
			line, err := parseLine(text)
			if err != nil || line.Seq <= newest || line.Key != publicKey {
				return nil //nolint:nilerr // the trail has it, or it is lost
			}
			newest = line.Seq
			before, _ := slices.BinarySearchFunc(lines, newest, func(l proof.Line, seq uint64) int { return cmp.Compare(l.Seq, seq) })
			if err = writeLines(w, lines[:before]); err == nil {
				_, err = w.Write(text)
			}
			lines = lines[before:]
			return err
		})
		if err == nil || errors.Is(err, errDamaged) { // nothing more of it can be read
			err = writeLines(w, lines)
		}
		return errors.Join(err, w.Flush())
	})
}

func writeLines(w io.Writer, lines []proof.Line) error {
	for _, line := range lines {
		text, err := json.Marshal(line)
		if err == nil {
			_, err = w.Write(append(text, '\n'))
		}
		if err != nil {
			return fmt.Errorf("encode history of checkpoints: %w", err)
		}
	}
	return nil
}

// eachText gives each whole line as it is, valid until the next one. A missing history has none.
func (l Log) eachText(handle func(number int, text []byte) error) error {
	f, err := durable.Open(l.path(proof.HistoryFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read history of checkpoints: %w", err)
	}
	defer func() { _ = f.Close() }() // it was only read
	lines := bufio.NewReaderSize(f, maxTail)
	for number := 1; ; number++ {
		text, err := lines.ReadSlice('\n')
		if errors.Is(err, io.EOF) {
			return nil // a torn line is on its way, or is cut off at the next start
		}
		if err != nil {
			return fmt.Errorf("%w: %s, line %d: %w", errDamaged, proof.HistoryFile, number, err)
		}
		if err := handle(number, text); err != nil {
			return err
		}
	}
}

// parseLine reads a line, and checks its signatures with its own key.
func parseLine(text []byte) (line proof.Line, err error) {
	if line, err = proof.ParseLine(text); err != nil {
		return line, err
	}
	_, at, err := proof.OpenAs(line.Key, []byte(line.Checkpoint))
	if err == nil && (at.IsZero() || !proof.PlainlySpelled(line.Checkpoint)) {
		err = errors.New("one of its signatures is not as the relay writes it")
	}
	return line, err
}

// maxTail bounds a line, and how much of the history's end is searched for a whole one: a note has
// some hundred bytes, with many witnesses some thousand.
const maxTail = 1 << 20

// newestLine finds the newest whole line, and its end.
func newestLine(f *os.File) (line proof.Line, end int64, err error) {
	size, err := f.Seek(0, io.SeekEnd)
	tail := make([]byte, min(size, maxTail))
	from := size - int64(len(tail))
	if err == nil {
		_, err = f.ReadAt(tail, from)
	}
	if err != nil {
		return proof.Line{}, 0, err
	}
	for {
		at := bytes.LastIndexByte(tail, '\n')
		if at < 0 {
			return proof.Line{}, 0, nil // nothing of it is of use, and it is written again
		}
		start := bytes.LastIndexByte(tail[:at], '\n') + 1
		if json.Unmarshal(tail[start:at], &line) == nil && line.Seq > 0 {
			return line, from + int64(at) + 1, nil
		}
		tail = tail[:start]
	}
}

// addLines appends to the history. A crash leaves a part of them, the last one perhaps torn.
func (l Log) addLines(lines []proof.Line) error {
	if len(lines) == 0 {
		return nil
	}
	var text bytes.Buffer
	if err := writeLines(&text, lines); err != nil {
		return err
	}
	f, err := os.OpenFile(l.path(proof.HistoryFile), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("write history of checkpoints: %w", err)
	}
	_, err = f.Write(text.Bytes())
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("write history of checkpoints: %w", err)
	}
	return durable.SyncDir(l.dir)
}
