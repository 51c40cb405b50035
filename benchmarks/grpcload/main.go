// Puts load on an endpoint for RocketMQ 5 clients, using only the stubs of grpc-go: sends, receives
// with acknowledgements, or idle clients. Prints one line of JSON; see benchmarks/grpc.py.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"sort"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	v2 "github.com/apache/rocketmq-clients/golang/v5/protocol/v2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/durationpb"
)

var (
	mode        = flag.String("mode", "send", "send, receive or idle")
	endpoint    = flag.String("endpoint", "", "host:port")
	topic       = flag.String("topic", "", "where to")
	group       = flag.String("group", "", "of whom")
	broker      = flag.String("broker", "", "name of the broker")
	connections = flag.Int("connections", 4, "")
	inFlight    = flag.Int("in-flight", 8, "calls at a time on each connection")
	queues      = flag.Int("queues", 4, "of the topic")
	body        = flag.Int("body", 512, "bytes of a message")
	seconds     = flag.Float64("seconds", 3, "")
	timeout     = 30 * time.Second
)

// client is one connection with the identity of one client.
type client struct {
	number   int
	fields   metadata.MD
	messages v2.MessagingServiceClient
	commands v2.MessagingService_TelemetryClient
}

type tally struct {
	messages, failures atomic.Int64
	first              atomic.Pointer[string]
	lock               sync.Mutex
	latencies          []int64
}

func (t *tally) fail(text string) {
	t.failures.Add(1)
	t.first.CompareAndSwap(nil, &text)
}

func main() {
	flag.Parse()
	clients := make([]*client, *connections)
	for number := range clients {
		made, err := connect(number)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		clients[number] = made
	}
	if *mode == "idle" {
		fmt.Println("{}")
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
		return
	}
	work := map[string]func(*client, int, *tally){"send": send, "receive": receive}[*mode]
	report(clients, work)
}

func connect(number int) (*client, error) {
	connection, err := grpc.NewClient(*endpoint,
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	made := &client{
		number:   number,
		messages: v2.NewMessagingServiceClient(connection),
		fields: metadata.Pairs(
			"x-mq-language", "GO", "x-mq-protocol", "v2", "x-mq-client-version", "5.1.3",
			"x-mq-date-time", "20260101T000000Z", "x-mq-namespace", "",
			"x-mq-client-id", fmt.Sprintf("load@%d@%d", os.Getpid(), number)),
	}
	made.commands, err = made.messages.Telemetry(made.context())
	if err != nil {
		return nil, err
	}
	if err := made.commands.Send(&v2.TelemetryCommand{
		Command: &v2.TelemetryCommand_Settings{Settings: settings()},
	}); err != nil {
		return nil, err
	}
	_, err = made.commands.Recv()
	return made, err
}

func (c *client) context() context.Context {
	return metadata.NewOutgoingContext(context.Background(), c.fields)
}

func settings() *v2.Settings {
	named := &v2.Resource{Name: *topic}
	if *mode == "send" {
		kind := v2.ClientType_PRODUCER
		return &v2.Settings{ClientType: &kind, PubSub: &v2.Settings_Publishing{
			Publishing: &v2.Publishing{Topics: []*v2.Resource{named}},
		}}
	}
	kind := v2.ClientType_SIMPLE_CONSUMER
	return &v2.Settings{ClientType: &kind, PubSub: &v2.Settings_Subscription{
		Subscription: &v2.Subscription{
			Group: &v2.Resource{Name: *group},
			Subscriptions: []*v2.SubscriptionEntry{{
				Topic:      named,
				Expression: &v2.FilterExpression{Type: v2.FilterType_TAG, Expression: "*"},
			}},
		},
	}}
}

func report(clients []*client, work func(*client, int, *tally)) {
	var found tally
	var running sync.WaitGroup
	until := time.Now().Add(time.Duration(*seconds * float64(time.Second)))
	started, used := time.Now(), cpuSeconds()
	for _, each := range clients {
		for worker := range *inFlight {
			running.Add(1)
			go func() {
				defer running.Done()
				for time.Now().Before(until) {
					work(each, worker, &found)
				}
			}()
		}
	}
	running.Wait()
	elapsed := time.Since(started).Seconds()
	sort.Slice(found.latencies, func(a, b int) bool { return found.latencies[a] < found.latencies[b] })
	line, _ := json.Marshal(map[string]any{
		"messages": found.messages.Load(), "seconds": elapsed,
		"load_cpu_share": (cpuSeconds() - used) / elapsed,
		"failures":       found.failures.Load(), "first_failure": found.first.Load(),
		"p50_us": percentile(found.latencies, 50), "p99_us": percentile(found.latencies, 99),
	})
	fmt.Println(string(line))
}

func percentile(sorted []int64, percent int) int64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[(len(sorted)-1)*percent/100]
}

func cpuSeconds() float64 {
	var usage syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()).Seconds()
}

var sequence atomic.Int64

func send(c *client, _ int, found *tally) {
	request := &v2.SendMessageRequest{Messages: []*v2.Message{{
		Topic: &v2.Resource{Name: *topic},
		SystemProperties: &v2.SystemProperties{
			MessageId:   fmt.Sprintf("01%032X", sequence.Add(1)),
			MessageType: v2.MessageType_NORMAL,
		},
		Body: make([]byte, *body),
	}}}
	ctx, cancel := context.WithTimeout(c.context(), timeout)
	defer cancel()
	started := time.Now()
	reply, err := c.messages.SendMessage(ctx, request)
	switch {
	case err != nil:
		found.fail(err.Error())
	case reply.GetStatus().GetCode() != v2.Code_OK:
		found.fail(reply.GetStatus().String())
	default:
		found.messages.Add(1)
		found.lock.Lock()
		found.latencies = append(found.latencies, time.Since(started).Microseconds())
		found.lock.Unlock()
	}
}

func receive(c *client, worker int, found *tally) {
	ctx, cancel := context.WithTimeout(c.context(), timeout)
	defer cancel()
	stream, err := c.messages.ReceiveMessage(ctx, &v2.ReceiveMessageRequest{
		Group: &v2.Resource{Name: *group},
		MessageQueue: &v2.MessageQueue{
			Topic:  &v2.Resource{Name: *topic},
			Id:     int32((c.number**inFlight + worker) % *queues),
			Broker: &v2.Broker{Name: *broker},
		},
		FilterExpression:   &v2.FilterExpression{Type: v2.FilterType_TAG, Expression: "*"},
		BatchSize:          32,
		InvisibleDuration:  durationpb.New(time.Minute),
		LongPollingTimeout: durationpb.New(5 * time.Second),
	})
	if err != nil {
		found.fail(err.Error())
		return
	}
	for {
		reply, err := stream.Recv()
		if err == io.EOF {
			return
		}
		if err != nil {
			found.fail(err.Error())
			return
		}
		if message := reply.GetMessage(); message != nil {
			acknowledge(c, message, found)
		}
	}
}

// acknowledge acknowledges one message, as every official client does.
func acknowledge(c *client, message *v2.Message, found *tally) {
	ctx, cancel := context.WithTimeout(c.context(), timeout)
	defer cancel()
	reply, err := c.messages.AckMessage(ctx, &v2.AckMessageRequest{
		Group: &v2.Resource{Name: *group},
		Topic: message.Topic,
		Entries: []*v2.AckMessageEntry{{
			MessageId:     message.SystemProperties.MessageId,
			ReceiptHandle: message.SystemProperties.GetReceiptHandle(),
		}},
	})
	switch {
	case err != nil:
		found.fail(err.Error())
	case reply.GetStatus().GetCode() != v2.Code_OK:
		found.fail(reply.GetStatus().String())
	default:
		found.messages.Add(1)
	}
}
