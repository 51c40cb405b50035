package interop;

import com.alibaba.fastjson2.JSONArray;
import com.alibaba.fastjson2.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;

/** A producer that goes on sending, whatever happens to the brokers, and tells what became of it. */
final class JavaSteady {
    private static final Map<String, JavaSteady> RUNNING = new ConcurrentHashMap<>();

    private final DefaultMQProducer producer;
    private final JSONObject command;
    private final AtomicInteger next = new AtomicInteger();
    private JSONArray answers = new JSONArray();
    private JSONArray failures = new JSONArray();
    private volatile boolean isHalted;

    private JavaSteady(JSONObject command) {
        this.command = command;
        producer = new DefaultMQProducer("steady");
    }

    /**
     * Begin to send; {@code name} is what the other operations ask for. Each of {@code threads} waits
     * {@code pauseMs} after each send. The body of a message is its number.
     */
    static JSONObject begin(JSONObject command) throws Exception {
        JavaSteady steady = new JavaSteady(command);
        DefaultMQProducer producer = steady.producer;
        producer.setNamesrvAddr(command.getString("nameserver"));
        producer.setMqClientApiTimeout(30_000); // 3 s are too few for a cold JVM on a busy machine
        producer.setInstanceName(JavaClient.instanceName(command));
        producer.setSendMsgTimeout(JavaClient.intOr(command, "timeoutMs", 3_000));
        producer.setRetryTimesWhenSendFailed(JavaClient.intOr(command, "retries", 2));
        producer.setPollNameServerInterval(JavaClient.intOr(command, "pollMs", 30_000));
        producer.start();
        RUNNING.put(command.getString("name"), steady);
        for (int i = 0; i < JavaClient.intOr(command, "threads", 4); i++) {
            Thread thread = new Thread(steady::sendOn);
            thread.setDaemon(true);
            thread.start();
        }
        return new JSONObject();
    }

    /** Return what came since it was asked: [number, invoked, ended] in milliseconds, or [.., why]. */
    static JSONObject taken(JSONObject command) {
        return RUNNING.get(command.getString("name")).take();
    }

    /** End it; what was under way is waited for by asking once more. */
    static JSONObject halt(JSONObject command) {
        JavaSteady steady = RUNNING.remove(command.getString("name"));
        steady.isHalted = true;
        JavaClient.closeLater(steady.producer::shutdown);
        return steady.take();
    }

    private synchronized JSONObject take() {
        JSONObject found = new JSONObject();
        found.put("answers", answers);
        found.put("failures", failures);
        answers = new JSONArray();
        failures = new JSONArray();
        return found;
    }

    private void sendOn() {
        while (!isHalted) {
            int number = next.getAndIncrement();
            long invokedMs = System.currentTimeMillis();
            String failure = sendOne(number);
            long endedMs = System.currentTimeMillis();
            synchronized (this) {
                if (failure == null) {
                    answers.add(new JSONArray(number, invokedMs, endedMs));
                } else if (!isHalted) {
                    failures.add(new JSONArray(number, invokedMs, endedMs, failure));
                }
            }
            try {
                Thread.sleep(JavaClient.intOr(command, "pauseMs", 2));
            } catch (InterruptedException e) {
                return;
            }
        }
    }

    /** Return why it failed, or null: what has not reached the replicas in time has failed too. */
    private String sendOne(int number) {
        byte[] body = Integer.toString(number).getBytes(StandardCharsets.UTF_8);
        try {
            SendResult result = producer.send(new Message(command.getString("topic"), body));
            return result.getSendStatus() == SendStatus.SEND_OK ? null : result.getSendStatus().name();
        } catch (Exception e) {
            return e.toString();
        }
    }
}
