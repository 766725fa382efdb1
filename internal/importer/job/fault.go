package job

import (
	"errors"
	"fmt"

	"drydock.dev/drydock/internal/contracts/transfer"
)

// Fault is an error that ends the worker for a known reason.
type Fault struct {
	Reason transfer.Reason
	// Message is for the DataVolume's owner.
	Message string
	// Err is the cause, for the log; it may be nil.
	Err error
}

func (f *Fault) Error() string { return f.Message }

func (f *Fault) Unwrap() error { return f.Err }

// Faultf returns a Fault; %w keeps its cause.
func Faultf(reason transfer.Reason, format string, args ...any) *Fault {
	err := fmt.Errorf(format, args...)
	return &Fault{Reason: reason, Message: err.Error(), Err: errors.Unwrap(err)}
}

// FaultOf returns an error's Fault, or an internal one.
func FaultOf(err error) *Fault {
	var fault *Fault
	if errors.As(err, &fault) {
		return fault
	}
	return &Fault{Reason: transfer.ReasonInternal, Message: err.Error(), Err: err}
}
