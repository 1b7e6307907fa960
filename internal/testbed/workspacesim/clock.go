package workspacesim

import "time"

// clock formats times, most of them within the same second.
type clock struct {
	at     int64 // Unix nanoseconds
	second int64
	text   []byte // of second, up to the decimal point
}

func (c *clock) set(at int64) {
	c.at = at
	second := at / int64(time.Second)
	if second == c.second && c.text != nil {
		return
	}
	c.second = second
	c.text = time.Unix(second, 0).UTC().AppendFormat(c.text[:0], "2006-01-02T15:04:05.")
}

// appendRFC3339 writes the time in UTC, with microseconds.
func (c *clock) appendRFC3339(dst []byte) []byte {
	dst = append(dst, c.text...)
	dst = appendDigits(dst, uint64(c.at%int64(time.Second)/int64(time.Microsecond)), 6)
	return append(dst, 'Z')
}

// appendDigits writes the last width decimal digits of n, with zeros in front.
func appendDigits(dst []byte, n uint64, width int) []byte {
	var digits [20]byte
	for i := width - 1; i >= 0; i-- {
		digits[i] = byte('0' + n%10)
		n /= 10
	}
	return append(dst, digits[:width]...)
}

// appendHex writes n as 16 hexadecimal digits.
func appendHex(dst []byte, n uint64) []byte {
	const digits = "0123456789abcdef"
	for shift := 60; shift >= 0; shift -= 4 {
		dst = append(dst, digits[n>>shift&15])
	}
	return dst
}
