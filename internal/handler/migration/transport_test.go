package migration

import (
	"testing"

	"drydock.dev/drydock/internal/rules/migration/switchover"
)

// TestTheTargetIsReadyForWhatTheSourceHasOffered: not before it has been offered, and is what QEMU was set to.
func TestTheTargetIsReadyForWhatTheSourceHasOffered(t *testing.T) {
	n := newNodes(t)
	source, target := n.source(), n.target("node1", noQEMU)
	n.here.await("a control connection", func() bool { return atSource(source).Connected })
	if _, offered := target.Offered(); offered || target.Agreed() {
		t.Error("something is offered before the source has said anything")
	}
	target.Tell(switchover.Ready)
	source.Offer(switchover.Transport{Channels: 4})
	n.there.await("the offer", func() bool { _, offered := target.Offered(); return offered })
	if got, _ := target.Offered(); got.Channels != 4 {
		t.Errorf("%d channels are offered", got.Channels)
	}
	source.Offer(switchover.Transport{}) // it was heard already
	source.Offer(switchover.Transport{Channels: 4})
	target.Agree(switchover.Transport{Channels: 3})
	target.Agree(switchover.Transport{Channels: 2}) // QEMU is set once
	target.Tell(switchover.Ready)
	n.here.await("the target to be ready", func() bool { return atSource(source).Ready })
	if got := source.Transport(); !target.Agreed() || got.Channels != 3 {
		t.Errorf("the guest is sent by %+v", got)
	}
}

// TestTheTargetDoesNotHaveMoreSent: it is another node's to say.
func TestTheTargetDoesNotHaveMoreSent(t *testing.T) {
	n := newNodes(t)
	source, target := n.source(), n.target("node1", noQEMU)
	source.Offer(switchover.Transport{Channels: 2})
	if got := source.Transport(); got.Channels != 0 {
		t.Errorf("before it has answered, the guest is sent by %+v", got)
	}
	target.Agree(switchover.Transport{Channels: 16})
	target.Tell(switchover.Ready)
	n.here.await("the target to be ready", func() bool { return atSource(source).Ready })
	if got := source.Transport(); got.Channels != 2 {
		t.Errorf("the guest is sent by %+v", got)
	}
}
