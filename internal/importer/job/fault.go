package job

import (
	"errors"
	"fmt"

	"drydock.dev/drydock/internal/contracts/transfer"
)

// Fault is an error that says how the worker ends.
type Fault struct {
	Reason transfer.Reason
	// Message is the sentence for the DataVolume's owner.
	Message string
	// Err is the cause, for the log; may be nil.
	Err error
}

func (f *Fault) Error() string { return f.Message }

func (f *Fault) Unwrap() error { return f.Err }

// Faultf makes a Fault of a sentence; %w keeps its cause.
func Faultf(reason transfer.Reason, format string, args ...any) *Fault {
	err := fmt.Errorf(format, args...)
	return &Fault{Reason: reason, Message: err.Error(), Err: errors.Unwrap(err)}
}

// FaultOf is the Fault in an error; every other error is an internal one.
func FaultOf(err error) *Fault {
	var fault *Fault
	if errors.As(err, &fault) {
		return fault
	}
	return &Fault{Reason: transfer.ReasonInternal, Message: err.Error(), Err: err}
}
