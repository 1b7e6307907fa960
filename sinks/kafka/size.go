package kafka

import "github.com/segmentio/kafka-go"

// Brokers bound a request's records as they are sent, compressed (message.max.bytes, by default
// 1 MiB and 12 bytes), but the compressed size is not known in advance. So the bound here is on
// the records before compression. It starts with a guess, is halved when a broker refuses, and
// grows slowly afterwards.
const (
	uncompressedLimit = 1_000_000
	compressedLimit   = 1 << 20
	leastLimit        = 16 << 10
	widening          = 1024 // a full request that is accepted widens the limit by 1/1024
)

func firstLimit(c kafka.Compression) int64 {
	if c == 0 {
		return uncompressedLimit
	}
	return compressedLimit
}

// Requests of nearLimit bytes of records, before compression, are large enough for a nearby
// broker: smaller pieces keep both sides at work and stay in the caches. When answers take
// longer, requests grow, so that the rate does not fall with the distance.
const (
	nearLimit      = 256 << 10
	perMillisecond = 64 << 10
)

// reach returns how large a request may be, given how long the last one took.
func (p *partition) reach() int64 {
	return max(nearLimit, p.took.Milliseconds()*perMillisecond)
}

// fit returns how many events from the start of rest go into one request, at least one, and
// whether it is the brokers' limit that bounds them.
func (w *worker) fit(rest []int32) (n int, full bool) {
	limit, reach := w.sink.limit.Load(), w.partition.reach()
	bound := min(limit, reach)
	var size int64
	for n, i := range rest {
		if size += recordSize(&w.events[i]); size > bound && n > 0 {
			return n, limit <= reach
		}
	}
	return len(rest), false
}

// narrow lowers the limit after a run that was too large for one request, unless a single
// record makes up most of the run.
func (w *worker) narrow(run []int32) {
	var size, largest int64
	for _, i := range run {
		n := recordSize(&w.events[i])
		size += n
		largest = max(largest, n)
	}
	if largest > size/2 {
		return
	}
	s := w.sink
	s.limit.Store(max(leastLimit, min(s.limit.Load(), size/2)))
}

// widen raises the limit after a full request that was accepted.
func (s *Sink) widen() {
	limit := s.limit.Load()
	s.limit.Store(min(firstLimit(s.compression), limit+limit/widening))
}
