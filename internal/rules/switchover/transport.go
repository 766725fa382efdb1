package switchover

// Transport is how QEMU sends its guest. Both QEMUs are set to the same one before either begins: the
// source's virt-handler offers one, and what the target's QEMU could be set to is what both take. The zero
// value is one connection, which every virt-handler and every QEMU knows.
type Transport struct {
	// Channels are the connections for memory beside the main one (multifd); 0 to send all on that one.
	Channels int
	// PostCopy means that the guest may move before its memory. QEMU 7.2 has no channels then, and does
	// not say so.
	PostCopy bool
}

const (
	// mostChannels is enough for what a network carries: one is good for about a GB in a second (decision
	// 293).
	mostChannels = 4
	// cpusPerChannel are the processors that a channel keeps busy on each node: virt-handler, which
	// encrypts it, and QEMU.
	cpusPerChannel = 2
	// oneIsEnough is a rate in bytes a second that one connection reaches on any machine.
	oneIsEnough = 512 * mib
	// smallMemory is sent in about the time that several connections take to be made.
	smallMemory = 512 * mib
)

// OfferOf returns how a source would send a guest with so much memory, where virt-handler may use so many
// processors at a time. There are several connections only where one is the limit.
func OfferOf(l Limits, memory int64, cpus int) Transport {
	t := Transport{PostCopy: l.PostCopy}
	if memory > smallMemory && (l.Bandwidth <= 0 || l.Bandwidth > oneIsEnough) {
		t.Channels = channels(mostChannels, cpus)
	}
	return t
}

// Accepted returns what a target takes of an offer, where virt-handler may use so many processors at a time. Whether
// QEMU there can do with post-copy, it says when it is set to it.
func (t Transport) Accepted(cpus int) Transport {
	return Transport{Channels: channels(t.Channels, cpus), PostCopy: t.PostCopy}
}

// Tries are what QEMU at the target is set to, the first that it takes.
func (t Transport) Tries() []Transport {
	if t.PostCopy {
		return []Transport{{PostCopy: true}, {Channels: t.Channels}}
	}
	return []Transport{t}
}

// channels bounds a number of channels by the processors for them. One channel is no more than none.
func channels(wanted, cpus int) int {
	n := min(wanted, mostChannels, cpus/cpusPerChannel)
	if n < 2 {
		return 0
	}
	return n
}
