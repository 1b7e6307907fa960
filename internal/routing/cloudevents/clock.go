package cloudevents

import "time"

// Clock writes times as time.RFC3339Nano does, in UTC. It keeps the text of the last second,
// since most events follow closely.
type Clock struct {
	second int64
	text   []byte
}

// Append appends t.
func (c *Clock) Append(dst []byte, t time.Time) []byte {
	if c.text == nil || c.second != t.Unix() {
		c.second = t.Unix()
		c.text = t.UTC().AppendFormat(c.text[:0], "2006-01-02T15:04:05")
	}
	dst = append(dst, c.text...)
	if ns := t.Nanosecond(); ns > 0 {
		digits := [10]byte{0: '.'}
		last := 0
		for i := 9; i > 0; i-- {
			digits[i] = byte('0' + ns%10)
			if last == 0 && ns%10 > 0 {
				last = i
			}
			ns /= 10
		}
		dst = append(dst, digits[:last+1]...)
	}
	return append(dst, 'Z')
}
