package switchover

// Transport is the configuration of the migration stream. Both QEMUs must have the same one: the
// source's virt-handler offers one, and the target accepts as much as its QEMU supports. The zero
// value is one connection, which all versions support.
type Transport struct {
	// Channels is the number of multifd connections; 0 sends memory on the main connection.
	Channels int
	// PostCopy means that the guest may move before its memory. QEMU 7.2 has no channels then, and does not report it.
	PostCopy bool
}

const (
	// mostChannels suffices for a network: a channel sends about a GB a second (decision 293).
	mostChannels = 4
	// cpusPerChannel are the CPUs that a channel uses on each node: virt-handler, which encrypts, and QEMU.
	cpusPerChannel = 2
	// One connection reaches this rate, in bytes a second, on any machine.
	oneIsEnough = 512 * mib
	// smallMemory is sent in about the time in which several connections are set up.
	smallMemory = 512 * mib
)

// OfferOf returns the source's offer for a guest with memory bytes, if virt-handler may use cpus
// CPUs. Several connections are offered only where one is the bottleneck.
func OfferOf(l Limits, memory int64, cpus int) Transport {
	t := Transport{PostCopy: l.PostCopy}
	if memory > smallMemory && (l.Bandwidth <= 0 || l.Bandwidth > oneIsEnough) {
		t.Channels = channels(mostChannels, cpus)
	}
	return t
}

// Accepted returns the part of an offer that the target accepts, if virt-handler may use cpus CPUs.
// QEMU itself shows whether it supports post-copy.
func (t Transport) Accepted(cpus int) Transport {
	return Transport{Channels: channels(t.Channels, cpus), PostCopy: t.PostCopy}
}

// Tries returns the configurations for QEMU at the target, of which the first that works is used.
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
