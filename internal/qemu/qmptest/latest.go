package qmptest

// KeepLatest puts an event into a full channel in place of its oldest. It never blocks, as the function that a
// qmp.Client calls with its events must not: Close waits for it, and a test may await no events.
func KeepLatest[T any](events chan T, event T) {
	for {
		select {
		case events <- event:
			return
		default:
		}
		select {
		case <-events:
		default:
		}
	}
}
