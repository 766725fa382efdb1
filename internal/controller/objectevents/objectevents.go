// Package objectevents reads the events about an object from the API server.
//
// It owns the request; objectevent decides which event counts. It must not watch events: there are many, and they matter
// only for stuck objects.
package objectevents

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/rules/object/objectevent"
)

// most bounds how many events about one object are read, since the users of a namespace may make any number.
const most = 500

// NewestWarning returns the newest warning, nil for none. The reader must ask the API server.
func NewestWarning(ctx context.Context, reader client.Reader, about metav1.Object) (*objectevent.Warning, error) {
	var list corev1.EventList
	err := reader.List(ctx, &list, client.InNamespace(about.GetNamespace()), client.Limit(most),
		client.MatchingFields(objectevent.WarningsAbout(about.GetUID())))
	if err != nil {
		return nil, fmt.Errorf("asking for the events of %s/%s: %w", about.GetNamespace(), about.GetName(), err)
	}
	return objectevent.NewestWarning(list.Items), nil
}
