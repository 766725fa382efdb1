//go:build e2e

package e2e

import (
	"context"
	"flag"
	"fmt"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var otherVersion = flag.String("migration.other", "", "the archive of another version's image of virt-controller and virt-handler, with which guests are migrated")

const (
	thisVirt  = "drydock.dev/virt:devel"
	otherVirt = "drydock.dev/virt:other"
)

// TestMigrationsBetweenVersions migrates guests while the nodes and virt-controller have two versions, as during an
// update or a rollback. Guests must go from each version to the other. A guest of the other version must have the
// same identity after the update and after its next start. Only a cluster with two builds shows that.
func TestMigrationsBetweenVersions(t *testing.T) {
	if *otherVersion == "" {
		t.Skip("there is no other version here: make test-versions BEFORE=<commit> builds one")
	}
	archive := filepath.Join(t.TempDir(), "virt.tar")
	if err := renamed(*otherVersion, archive, thisVirt, otherVirt); err != nil {
		t.Fatalf("naming the other version's image %s: %v", otherVirt, err)
	}
	if out, err := output(t.Context(), "drydock", "image", "load", archive); err != nil {
		t.Fatalf("drydock image load: %v\n%s", err, out)
	}
	// The test decides which pod has which version by deleting pods.
	patch(t, "daemonset/virt-handler", `{"spec":{"updateStrategy":{"type":"OnDelete","rollingUpdate":null}}}`)
	t.Cleanup(func() {
		patch(t, "daemonset/virt-handler", `{"spec":{"updateStrategy":{"type":"RollingUpdate"}}}`)
		runImage(t, "daemonset/virt-handler", thisVirt)
		rolledOut(t, "daemonset/virt-handler")
	})
	runImage(t, "daemonset/virt-handler", otherVirt)
	replaceHandler(t, "node2", otherVirt)
	t.Run("a virt-handler", func(t *testing.T) {
		ns := newNamespace(t)
		movesThereAndBack(t, bootVM(t, newMigratableVM(t, ns, "moves")))
	})
	ns, knew := newNamespace(t), "" // the identity, before the update, of a guest that outlives it
	t.Run("a virt-handler and virt-controller", func(t *testing.T) {
		t.Cleanup(func() {
			runImage(t, "deployment/virt-controller", thisVirt)
			rolledOut(t, "deployment/virt-controller")
		})
		runImage(t, "deployment/virt-controller", otherVirt)
		rolledOut(t, "deployment/virt-controller")
		g := bootVM(t, newMigratableVM(t, ns, "moves"))
		knew = g.run(self)
		movesThereAndBack(t, g)
	})
	if knew == "" {
		t.FailNow() // it has logged the reason
	}
	t.Run("a guest whose virt-controller was updated", func(t *testing.T) {
		g := login(t, ns, "moves")
		for _, since := range []string{"the update", "a restart after the update"} {
			if since != "the update" {
				restartAndAwait(t, ns, "moves")
				g = login(t, ns, "moves")
			}
			if now := g.run(self); now != knew {
				t.Errorf("since %s the guest sees\n%s\nand saw\n%s", since, now, knew)
			}
		}
	})
}

// patch changes an object of Drydock's installation.
func patch(t *testing.T, object, change string) {
	t.Helper()
	if out, err := kubectl(context.Background(), "-n", "kubevirt", "patch", object, "--type", "strategic", "-p", change); err != nil {
		t.Fatalf("changing %s: %v\n%s", object, err, out)
	}
}

func runImage(t *testing.T, object, image string) {
	t.Helper()
	patch(t, object, fmt.Sprintf(`{"spec":{"template":{"spec":{"containers":[{"name":%q,"image":%q}]}}}}`, filepath.Base(object), image))
}

func rolledOut(t *testing.T, object string) {
	t.Helper()
	if out, err := kubectl(context.Background(), "-n", "kubevirt", "rollout", "status", object, "--timeout="+rolloutTime); err != nil {
		t.Fatalf("%s is not rolled out: %v\n%s", object, err, out)
	}
}

func replaceHandler(t *testing.T, node, image string) {
	t.Helper()
	handlers := func() []corev1.Pod {
		var list corev1.PodList
		if err := cluster.client.List(t.Context(), &list, client.InNamespace("kubevirt"), client.MatchingLabels{"kubevirt.io": "virt-handler"}); err != nil {
			t.Fatal(err)
		}
		return list.Items
	}
	for _, pod := range handlers() {
		if pod.Spec.NodeName == node {
			deleteObject(t, &pod)
		}
	}
	eventually(t, "virt-handler of "+image+" on "+node, func(context.Context) error {
		for _, pod := range handlers() {
			if c := pod.Status.ContainerStatuses; pod.Spec.NodeName == node && len(c) > 0 && c[0].Ready && c[0].Image == image {
				return nil
			}
		}
		return fmt.Errorf("it is not there or not ready")
	})
}
