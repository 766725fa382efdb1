package switchover

// Transport configures the migration stream, for both QEMUs alike: the source's virt-handler offers one, and the target
// accepts the part that its QEMU supports. All versions support the zero value.
type Transport struct {
	// Channels is the number of multifd connections; 0 sends memory on the main connection.
	Channels int
	// PostCopy means that the guest may move before its memory. QEMU 10.0 refuses channels then, and 7.2 does not use them.
	PostCopy bool
}

const (
	// mostChannels suffices for a network: a channel sends about a GB a second (decision 293).
	mostChannels = 4
	// cpusPerChannel are for virt-handler, which encrypts, and QEMU on each node.
	cpusPerChannel = 2
	oneIsEnough    = 512 * mib // bytes a second: one connection reaches this rate on any machine
	smallMemory    = 512 * mib // is sent while several connections are set up
)

// OfferOf returns the source's offer for a guest with memory bytes and a virt-handler with cpus CPUs: several connections
// only where one is the bottleneck.
func OfferOf(l Limits, memory int64, cpus int) Transport {
	t := Transport{PostCopy: l.PostCopy}
	if memory > smallMemory && (l.Bandwidth <= 0 || l.Bandwidth > oneIsEnough) {
		t.Channels = channels(mostChannels, cpus)
	}
	return t
}

// Accepted returns the part of an offer that a target with cpus CPUs for virt-handler accepts. QEMU shows whether it
// supports post-copy.
func (t Transport) Accepted(cpus int) Transport {
	return Transport{Channels: channels(t.Channels, cpus), PostCopy: t.PostCopy}
}

// Tries returns the configurations for QEMU at the target: the first that works is used.
func (t Transport) Tries() []Transport {
	if t.PostCopy {
		return []Transport{{PostCopy: true}, {Channels: t.Channels}}
	}
	return []Transport{t}
}

// One channel is no better than none.
func channels(wanted, cpus int) int {
	n := min(wanted, mostChannels, cpus/cpusPerChannel)
	if n < 2 {
		return 0
	}
	return n
}
