package journal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/auditrelay/auditrelay/internal/record"
	"github.com/nats-io/nats.go/jetstream"
)

// Keys of the events stream's metadata. They say who wrote to it last.
const (
	metaRecordVersion = "auditrelay.record-version"
	metaProgram       = "auditrelay.version"
)

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
	if noted > record.Version {
		return fmt.Errorf("stream %s: %w: auditrelay %s writes records of version %d, this one reads up to %d; run that version or a later one; nothing was changed",
			j.names.events, record.ErrVersion, cmp.Or(info.Config.Metadata[metaProgram], "of an unknown version"), noted, record.Version)
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
		if err := record.CheckVersion(msg.Data); err != nil {
			return fmt.Errorf("stream %s, position %d: %w; %s", j.names.events, seq, err, adviceVersion)
		}
	}
	return nil
}

// streamMetadata notes who writes to the events' stream.
func streamMetadata(program string) map[string]string {
	return map[string]string{
		metaRecordVersion: strconv.Itoa(record.Version),
		metaProgram:       cmp.Or(program, "dev"),
	}
}
