package cloudevents

import "time"

// Clock writes times as time.RFC3339Nano does, in UTC. It keeps the last text: most times are of
// the same second as the one before, and those of receipt are often equal.
type Clock struct {
	second  int64
	ns      int
	text    []byte
	seconds int // bytes of text, without the fraction
}

// Append appends t.
func (c *Clock) Append(dst []byte, t time.Time) []byte {
	second, ns := t.Unix(), t.Nanosecond()
	if c.text == nil || c.second != second {
		c.text = t.UTC().AppendFormat(c.text[:0], "2006-01-02T15:04:05")
		c.second, c.ns, c.seconds = second, -1, len(c.text)
	}
	if c.ns != ns {
		c.ns, c.text = ns, append(appendFraction(c.text[:c.seconds], ns), 'Z')
	}
	return append(dst, c.text...)
}

// appendFraction appends the decimals of a second, without zeros at their end.
func appendFraction(dst []byte, ns int) []byte {
	if ns == 0 {
		return dst
	}
	digits := [10]byte{0: '.'}
	last := 0
	for i := 9; i > 0; i-- {
		digits[i] = byte('0' + ns%10)
		if last == 0 && ns%10 > 0 {
			last = i
		}
		ns /= 10
	}
	return append(dst, digits[:last+1]...)
}
