package job

import "fmt"

// Bytes formats a size with a binary unit, exactly if it is a whole number of that unit.
func Bytes(n int64) string {
	const unit = 1024
	value, power := float64(n), 0
	for value >= unit && power < 5 {
		value /= unit
		power++
	}
	if power == 0 {
		return fmt.Sprintf("%d bytes", n)
	}
	name := string("KMGTP"[power-1]) + "iB"
	if value == float64(int64(value)) {
		return fmt.Sprintf("%d %s", int64(value), name)
	}
	return fmt.Sprintf("%.2f %s", value, name)
}
