package kafka

import "github.com/segmentio/kafka-go"

// Brokers bound a request's records as they are sent, compressed (message.max.bytes, by
// default 1 MiB and 12 bytes); their compressed size is not known before. So the bound here
// is on the records before compression: a guess at first, halved when a broker refuses,
// widened slowly afterwards.
const (
	uncompressedLimit = 1_000_000
	compressedLimit   = 1 << 20
	leastLimit        = 16 << 10
	widening          = 1024 // an accepted full request widens the limit by 1/1024
)

func firstLimit(c kafka.Compression) int64 {
	if c == 0 {
		return uncompressedLimit
	}
	return compressedLimit
}

// A request of nearLimit bytes of records, before compression, is enough for a nearby
// broker: smaller pieces keep both sides at work and stay in the caches. With slower
// answers, requests grow: the rate must not fall with the distance.
const (
	nearLimit      = 256 << 10
	perMillisecond = 64 << 10
)

// reach is how large a request may be for how long the last one took.
func (p *partition) reach() int64 {
	return max(nearLimit, p.took.Milliseconds()*perMillisecond)
}

// fit returns how many events from the start of rest go into one request, at least one, and
// whether the brokers' limit bounds them.
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

// narrow lowers the limit after a run too large for one request, unless one record
// dominates the run.
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

// widen raises the limit after an accepted full request.
func (s *Sink) widen() {
	limit := s.limit.Load()
	s.limit.Store(min(firstLimit(s.compression), limit+limit/widening))
}
