package journal

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// info asks for the state of the events' stream.
func (j *Journal) info(ctx context.Context) (*jetstream.StreamInfo, error) {
	info, err := j.stream.Info(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the journal's state: %w", err)
	}
	return info, nil
}

// get reads the first record at or after seq, from any replica. The error wraps
// jetstream.ErrMsgNotFound if there is none.
func (j *Journal) get(ctx context.Context, seq uint64) (*jetstream.RawStreamMsg, error) {
	if err := j.asks(ctx, seq); err != nil {
		return nil, err
	}
	msg, err := j.stream.GetMsg(ctx, seq, jetstream.WithGetMsgSubject(j.names.eventsSubject))
	if err != nil {
		return nil, fmt.Errorf("read record %d: %w", seq, err)
	}
	return msg, nil
}

// scan calls visit with each record from a position on, in order, until visit returns
// false or the stream ends. headersOnly leaves out the records' data, and ahead bounds
// the records requested in advance. The caller has blocks verified.
func (j *Journal) scan(ctx context.Context, from uint64, headersOnly bool, ahead jetstream.PullMessagesOpt,
	visit func(jetstream.Msg, *jetstream.MsgMetadata) (more bool, err error),
) error {
	consumer, err := j.stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: from, HeadersOnly: headersOnly,
	})
	if err != nil || consumer.CachedInfo().NumPending == 0 {
		return err
	}
	it, err := consumer.Messages(ahead)
	if err != nil {
		return err
	}
	defer it.Stop()
	for {
		msg, err := it.Next(jetstream.NextContext(ctx))
		if err != nil {
			return err
		}
		meta, err := msg.Metadata()
		if err != nil {
			return err
		}
		if more, err := visit(msg, meta); err != nil || !more || meta.NumPending == 0 {
			return err
		}
	}
}
