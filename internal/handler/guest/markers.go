package guest

import (
	"context"
	"errors"

	"drydock.dev/drydock/internal/rules/machine"
)

// objects are the names of QEMU's objects, the markers among them.
func (g *Guest) objects(ctx context.Context) (map[string]bool, error) {
	var list []struct {
		Name string `json:"name"`
	}
	if err := g.monitor.Execute(ctx, "qom-list", map[string]any{"path": "/objects"}, &list); err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for _, o := range list {
		names[o.Name] = true
	}
	return names, nil
}

// addMarker adds a marker unless it is there. The caller holds g.power.
func (g *Guest) addMarker(ctx context.Context, marker string) error {
	objects, err := g.objects(ctx)
	if err != nil || objects[marker] {
		return err
	}
	return g.execute(ctx, "object-add", map[string]any{"qom-type": machine.MarkerType, "id": marker})
}

// removeMarker removes a marker that is there, or was until a moment ago.
func (g *Guest) removeMarker(ctx context.Context, marker string) error {
	err := g.execute(ctx, "object-del", map[string]any{"id": marker})
	if err == nil {
		return nil
	}
	objects, asking := g.objects(ctx)
	if asking != nil || objects[marker] {
		return errors.Join(err, asking)
	}
	return nil
}
