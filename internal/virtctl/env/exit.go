package env

import "fmt"

// Ended is the error of a program that virtctl ran in its own place, ssh for
// example, and that has told the user itself what went wrong.
type Ended struct {
	Program string
	Code    int
}

func (e *Ended) Error() string {
	return fmt.Sprintf("%s ended with exit code %d", e.Program, e.Code)
}
