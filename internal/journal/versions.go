package journal

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go/jetstream"
)

// ErrVersion is wrapped by the error of whatever a later version of auditrelay
// wrote. Such records are sound: nothing sets them aside or passes over them.
var ErrVersion = errors.New("written by a later version of auditrelay")

// recordVersion is the version of the records that this auditrelay writes, and
// the newest that it reads: the last byte of recordMagic.
const recordVersion = 1

// Keys of the events stream's metadata. They say who wrote to it last.
const (
	metaRecordVersion = "auditrelay.record-version"
	metaProgram       = "auditrelay.version"
)

// checkVersion tells a record of a later version from a damaged one: a record
// that is whole once its version byte is set right has a flipped bit there.
func checkVersion(rec []byte) error {
	if len(rec) < len(recordMagic) || string(rec[:3]) != recordMagic[:3] {
		return nil
	}
	if rec[3] <= recordMagic[3] || rec[3] > 'z' || soundAsOurs(rec) {
		return nil
	}
	return fmt.Errorf("%w: the record begins with %q, this version reads %q", ErrVersion, rec[:4], recordMagic)
}

// soundAsOurs reports whether rec has the checksum of a record of our version.
func soundAsOurs(rec []byte) bool {
	if len(rec) < recordHeader {
		return false
	}
	head := [16]byte(rec)
	copy(head[:], recordMagic)
	return binary.LittleEndian.Uint64(rec[16:]) == recordSum(head[:], rec[recordHeader:])
}

const adviceVersion = "run the version that wrote them, or a later one; nothing was changed"

// checkStream refuses a stream that a later version writes to: by its metadata,
// and by its oldest and its newest record. A source finds any other when it
// comes to it, and waits there.
func (j *Journal) checkStream(ctx context.Context) error {
	stream, err := j.conn.JetStream.Stream(ctx, j.names.events)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	info := stream.CachedInfo()
	noted, _ := strconv.Atoi(info.Config.Metadata[metaRecordVersion]) // none, from before it was noted, is 0
	if noted > recordVersion {
		return fmt.Errorf("stream %s: %w: auditrelay %s writes records of version %d, this one reads up to %d; run that version or a later one; nothing was changed",
			j.names.events, ErrVersion, cmp.Or(info.Config.Metadata[metaProgram], "of an unknown version"), noted, recordVersion)
	}
	if info.State.Msgs == 0 {
		return nil
	}
	for _, seq := range []uint64{info.State.FirstSeq, info.State.LastSeq} {
		if _, err := j.conn.verified(ctx, seq, false); err != nil {
			return err
		}
		msg, err := stream.GetMsg(ctx, seq)
		if err != nil {
			continue // a record that is lost is named elsewhere; a source looks at each
		}
		if err := checkVersion(msg.Data); err != nil {
			return fmt.Errorf("stream %s, position %d: %w; %s", j.names.events, seq, err, adviceVersion)
		}
	}
	return nil
}

// streamMetadata notes who writes to the events' stream.
func streamMetadata(program string) map[string]string {
	return map[string]string{
		metaRecordVersion: strconv.Itoa(recordVersion),
		metaProgram:       cmp.Or(program, "dev"),
	}
}
