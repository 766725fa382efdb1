package switchover

// Transport is the configuration of the migration stream, the same for both QEMUs: the source's virt-handler offers
// one, and the target accepts as much as its QEMU supports. All versions support the zero value.
type Transport struct {
	// Channels is the number of multifd connections; 0 sends memory on the main connection.
	Channels int
	// PostCopy means that the guest may move before its memory. QEMU 7.2 has no channels then, and does not report it.
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

// OfferOf returns the source's offer for a guest with memory bytes, if virt-handler may use cpus
// CPUs. It has several connections only where one is the bottleneck.
func OfferOf(l Limits, memory int64, cpus int) Transport {
	t := Transport{PostCopy: l.PostCopy}
	if memory > smallMemory && (l.Bandwidth <= 0 || l.Bandwidth > oneIsEnough) {
		t.Channels = channels(mostChannels, cpus)
	}
	return t
}

// Accepted returns the part of an offer that a target with cpus CPUs for virt-handler accepts. QEMU itself shows
// whether it supports post-copy.
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
