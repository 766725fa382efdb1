package migration

import (
	"testing"

	"drydock.dev/drydock/internal/rules/migration/switchover"
)

// Ready follows the offer and the setting of QEMU.
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
	source.Offer(switchover.Transport{}) // received already
	source.Offer(switchover.Transport{Channels: 4})
	target.Agree(switchover.Transport{Channels: 3})
	target.Agree(switchover.Transport{Channels: 2}) // QEMU is set only once
	target.Tell(switchover.Ready)
	n.here.await("the target to be ready", func() bool { return atSource(source).Ready })
	if got := source.Transport(); !target.Agreed() || got.Channels != 3 {
		t.Errorf("the guest is sent by %+v", got)
	}
	if atSource(source).Loaded {
		t.Error("the source knows already that the target has loaded the guest")
	}
	target.Tell(switchover.Loaded)
	n.here.await("the target to have loaded the guest", func() bool { return atSource(source).Loaded })
}

// The source sends no more than it has offered, whatever the other node answers.
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
