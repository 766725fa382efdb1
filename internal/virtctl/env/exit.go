package env

import "fmt"

// Ended is the error of a program, such as ssh, that virtctl ran in its own place, or of a command with an exit code of its
// own. Everything was printed already.
type Ended struct {
	Program string
	Code    int
}

func (e *Ended) Error() string {
	return fmt.Sprintf("%s ended with exit code %d", e.Program, e.Code)
}
