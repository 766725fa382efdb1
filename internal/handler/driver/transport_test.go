package driver

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"

	"drydock.dev/drydock/internal/qemu/qmptest"
	v1 "kubevirt.io/api/core/v1"
)

// large returns a guest whose memory is sent over several connections, if there are processors for them.
func large(instance *v1.VirtualMachineInstance) *v1.VirtualMachineInstance {
	memory := resource.MustParse("4Gi")
	instance.Spec.Domain.Memory = &v1.Memory{Guest: &memory}
	return instance
}

// TestAGuestMigratesBySeveralConnections: their number depends on the processors of both nodes.
func TestAGuestMigratesBySeveralConnections(t *testing.T) {
	for _, c := range []struct{ from, to, want int }{{8, 64, 4}, {64, 6, 3}, {64, 3, 0}, {2, 64, 0}} {
		t.Run(fmt.Sprintf("from %d to %d processors", c.from, c.to), func(t *testing.T) {
			v := newVoyageOf(t, large(withoutScratch(scheduled("web"))))
			v.to.cpus = c.to
			v.from.cpus = c.from
			v.from.restart()
			v.beginAndCopy(nil)
			for _, s := range []*site{v.from, v.to} {
				qemu := s.model.qemu
				if channels := qemu.Parameter("multifd-channels"); qemu.Capability("multifd") != (c.want > 0) || c.want > 0 && channels != fmt.Sprint(c.want) {
					t.Errorf("%s: multifd is %v, with %q channels, want %d", s.name, qemu.Capability("multifd"), channels, c.want)
				}
			}
			v.release()
			v.api.await(t, "the completion", completed)
			<-v.from.model.qemu.Ended()
			v.alone(v.to, v.from)
		})
	}
}

// TestATargetIsNotReadyBeforeQEMUWaits: the obstacle may pass.
func TestATargetIsNotReadyBeforeQEMUWaits(t *testing.T) {
	v := newVoyage(t)
	v.begin(nil)
	refused := make(chan struct{}, 100)
	v.to.model.scripted = func(qemu *qmptest.Server) {
		qemu.Override("migrate-incoming", func(json.RawMessage) (any, error) {
			refused <- struct{}{}
			return nil, errors.New("Failed to bind socket")
		})
	}
	v.to.start()
	for range 3 {
		<-refused
	}
	if m := v.api.await(t, "the address", addressed).Status.MigrationState; m.StartTimestamp != nil {
		t.Errorf("the migration has begun: %+v", m)
	}
	v.to.model.qemu.Override("migrate-incoming", nil)
	v.api.await(t, "the start", started)
	v.release()
	v.api.await(t, "the completion", completed)
	<-v.from.model.qemu.Ended()
	v.alone(v.to, v.from)
}
