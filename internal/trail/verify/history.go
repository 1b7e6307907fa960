package verify

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/trail/proof"
)

// signed is a checkpoint with a good signature.
type signed struct {
	seq       uint64 // its number; 0: it is not in the history
	size      int64
	root      tlog.Hash
	witnessed bool // by a quorum
	elsewhere bool // it is no part of the log's files
	audit.Signing
}

// open checks a signed note. Without a trusted key it only reads it.
func (l *logCheck) open(note []byte) (signed, proof.Cosigned, error) {
	if !l.trusted {
		c, err := proof.ReadCheckpoint(note)
		if err == nil && c.Origin != l.origin {
			err = fmt.Errorf("it is of the origin %q", c.Origin)
		}
		return signed{size: c.Size, root: c.Root}, proof.Cosigned{}, err
	}
	c, by, err := l.policy.Open(note)
	if err != nil && !errors.Is(err, proof.ErrQuorum) {
		return signed{}, by, err
	}
	if c.Origin != l.origin {
		return signed{}, by, fmt.Errorf("it is of the origin %q", c.Origin)
	}
	return signed{size: c.Size, root: c.Root, witnessed: err == nil, Signing: audit.SigningOf(&c, by.Time)}, by, nil
}

const (
	// maxLine bounds a line of the history: a note with a hundred signatures.
	maxLine = 1 << 20
	// signatures are checked in parallel, this many lines at a time.
	lineBatch = 512
)

// readHistory checks the history's signatures, and reports the bad ones.
func (l *logCheck) readHistory(ctx context.Context) error {
	body, missing, err := l.fetch.open(ctx, proof.HistoryFile)
	if err != nil {
		return err
	}
	if missing {
		l.lost = true
		l.fileFinding(proof.HistoryFile, "the history of checkpoints is not there")
		return nil
	}
	defer func() { _ = body.Close() }()
	in := bufio.NewReaderSize(body, maxLine)
	for number := 0; ; {
		lines, err := readLines(in, lineBatch)
		if takeErr := l.takeLines(ctx, number, lines); takeErr != nil {
			return takeErr
		}
		number += len(lines)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", proof.HistoryFile, err)
		}
	}
}

// readLines reads the next lines, each with its end, up to some megabytes. A last one without it is left out: a
// crash leaves a part of a line, and the next start cuts it off. One that is too long is nil.
func readLines(in *bufio.Reader, most int) (lines [][]byte, err error) {
	for size := 0; len(lines) < most && size < batchBytes; {
		text, err := in.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			lines, text = append(lines, nil), nil
			for errors.Is(err, bufio.ErrBufferFull) {
				_, err = in.ReadSlice('\n')
			}
		}
		if err != nil {
			return lines, err
		}
		if text != nil {
			lines, size = append(lines, bytes.Clone(text)), size+len(text)
		}
	}
	return lines, nil
}

// takeLines checks lines, of which the first comes after number others.
func (l *logCheck) takeLines(ctx context.Context, number int, lines [][]byte) error {
	found, errs := make([]signed, len(lines)), make([]error, len(lines))
	err := l.o.parallel(ctx, len(lines), func(i int) error {
		found[i], errs[i] = l.readLine(lines[i])
		return nil
	})
	if err != nil {
		return err
	}
	for i, s := range found {
		if errs[i] == nil {
			l.take(s)
			continue
		}
		l.fileFinding(proof.HistoryFile, "line %d: %v", number+i+1, errs[i])
		l.unread = true
	}
	return nil
}

func (l *logCheck) readLine(text []byte) (signed, error) {
	if text == nil {
		return signed{}, fmt.Errorf("it has more than %d bytes", maxLine)
	}
	of, err := proof.ParseLine(text)
	if err != nil {
		return signed{}, err
	}
	if l.trusted && of.Key != l.policy.Logs[0].Key {
		return signed{}, fmt.Errorf("it names the key %q, not the trusted one", of.Key)
	}
	s, _, err := l.open([]byte(of.Checkpoint))
	s.seq = of.Seq
	if err == nil && l.trusted && (s.Time.IsZero() || !proof.PlainlySpelled(of.Checkpoint)) {
		err = errors.New("one of its signatures is not as the relay writes it")
	}
	return s, err
}

// take holds a checkpoint against the one before it, and keeps it.
func (l *logCheck) take(s signed) {
	l.report.Checkpoints++
	l.complete.pulse.Add(s.Signing, s.seq)
	if n := len(l.history); n > 0 {
		last := &l.history[n-1]
		if s.seq > l.seq+1 && !l.unread {
			l.checkpointFinding(proof.KindCheckpoint, l.seq+1, s.seq-1, "the history does not have it")
		}
		if s.seq <= l.seq {
			l.checkpointFinding(proof.KindCheckpoint, s.seq, s.seq, "it stands after checkpoint %d", l.seq)
		}
		if s.size < last.size {
			l.checkpointFinding(proof.KindHistory, s.seq, s.seq, "it covers %d entries, the one before it %d: the log went back", s.size, last.size)
		}
		if s.size == last.size && s.root == last.root { // signed again
			last.witnessed = last.witnessed || s.witnessed
			l.seq, l.unread = s.seq, false
			l.again = append(l.again, s.Signing)
			return
		}
	} else if l.firstSeq > 0 && s.seq > l.firstSeq && !l.unread {
		l.checkpointFinding(proof.KindCheckpoint, l.firstSeq, s.seq-1, "the history does not have it")
	}
	l.seq, l.unread = s.seq, false
	l.history, l.again = append(l.history, s), []audit.Signing{s.Signing}
}

func (l *logCheck) checkpointFinding(kind string, from, to uint64, format string, args ...any) {
	l.report.Integrity.run(kind, l.origin, int64(from), int64(to), proof.HistoryFile, format, args...)
}

func (l *logCheck) fileFinding(file, format string, args ...any) {
	l.report.Integrity.about(proof.KindCheckpoint, l.origin, file, format, args...)
}

// sizes are the sizes of all known trees, size at most, ascending.
func (l *logCheck) sizes(size int64) (sizes []int64) {
	for _, s := range l.history {
		if s.size > 0 && s.size <= size {
			sizes = append(sizes, s.size)
		}
	}
	slices.Sort(sizes)
	return slices.Compact(sizes)
}

// compare holds the roots of the history, up to the proven size, against the tree's.
func (l *logCheck) compare(s *scanned, roots []tlog.Hash, size int64) {
	for _, c := range l.history {
		i, found := slices.BinarySearch(s.sizes, c.size)
		if !found || c.size > size || roots[i] == (tlog.Hash{}) || roots[i] == c.root {
			continue
		}
		const other = "it is signed for %d entries with another root than theirs: the log has signed two histories"
		switch {
		case c.elsewhere:
			l.report.Integrity.about(proof.KindHistory, l.origin, "", "a checkpoint known from elsewhere has another root for the first %d entries: the log has signed two histories", c.size)
		case c.seq == 0:
			l.report.Integrity.about(proof.KindHistory, l.origin, proof.CheckpointFile, other, c.size)
		default:
			l.checkpointFinding(proof.KindHistory, c.seq, c.seq, other, c.size)
		}
	}
}
