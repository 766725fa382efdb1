package guest

import (
	"context"
	"errors"

	"drydock.dev/drydock/internal/qemu/qmp"
	"drydock.dev/drydock/internal/rules/machine"
)

type object struct {
	Name string `json:"name"`
}

func listObjects(list *[]object) qmp.Command {
	return qmp.Command{Name: "qom-list", Args: map[string]any{"path": "/objects"}, Result: list}
}

func names(list []object) map[string]bool {
	set := map[string]bool{}
	for _, o := range list {
		set[o.Name] = true
	}
	return set
}

func (g *Guest) queryObjects(ctx context.Context) (map[string]bool, error) {
	var list []object
	err := g.monitor.ExecuteAll(ctx, listObjects(&list))
	return names(list), err
}

// addMarker does nothing if the marker exists.
func (g *Guest) addMarker(ctx context.Context, marker string) error {
	objects, err := g.queryObjects(ctx)
	if err != nil || objects[marker] {
		return err
	}
	return g.execute(ctx, "object-add", map[string]any{"qom-type": machine.MarkerType, "id": marker})
}

// removeMarker also succeeds if the marker is already gone.
func (g *Guest) removeMarker(ctx context.Context, marker string) error {
	err := g.execute(ctx, "object-del", map[string]any{"id": marker})
	if err == nil {
		return nil
	}
	objects, asking := g.queryObjects(ctx)
	if asking != nil || objects[marker] {
		return errors.Join(err, asking)
	}
	return nil
}
