package interop;

import com.alibaba.fastjson2.JSONArray;
import com.alibaba.fastjson2.JSONObject;
import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.TreeSet;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/** Looks at a broker, and changes its topics, with the client behind Apache's mqadmin. */
final class JavaAdmin {
    private interface Step<T> {
        T run(DefaultMQAdminExt admin) throws Exception;
    }

    private JavaAdmin() {}

    /**
     * Return the messages of {@code topic} with {@code key}, as many as {@code count} (32); or with
     * the unique id {@code msgId}.
     */
    static JSONArray query(JSONObject command) throws Exception {
        String topic = command.getString("topic");
        int count = JavaClient.intOr(command, "count", 32);
        long begin = command.getLongValue("beginMs", 0);
        long end = command.getLongValue("endMs", Long.MAX_VALUE);
        String unique = command.getString("msgId");
        return with(command, admin -> {
            QueryResult found = unique == null
                    ? admin.queryMessage(topic, command.getString("key"), count, begin, end)
                    : admin.queryMessageByUniqKey(null, topic, unique, count, begin, end);
            JSONArray answer = new JSONArray();
            for (MessageExt message : found.getMessageList()) {
                answer.add(Bodies.describe(message));
            }
            return answer;
        });
    }

    /** Return the message at {@code msgId}, an offset message id. */
    static JSONObject message(JSONObject command) throws Exception {
        return with(command, admin -> Bodies.describe(
                admin.viewMessage(command.getString("topic"), command.getString("msgId"))));
    }

    static JSONObject createTopic(JSONObject command) throws Exception {
        int queues = command.getIntValue("queues");
        TopicConfig topic = new TopicConfig(command.getString("topic"), queues, queues);
        JSONObject attributes = command.getJSONObject("attributes");
        if (attributes != null) {
            attributes.forEach((k, v) -> topic.getAttributes().put("+" + k, v.toString()));
        }
        return with(command, admin -> {
            admin.createAndUpdateTopicConfig(command.getString("broker"), topic);
            return new JSONObject();
        });
    }

    static JSONObject deleteTopic(JSONObject command) throws Exception {
        return with(command, admin -> {
            admin.deleteTopic(command.getString("topic"), command.getString("cluster"));
            return new JSONObject();
        });
    }

    static JSONArray topics(JSONObject command) throws Exception {
        return with(command, admin ->
                new JSONArray(new TreeSet<>(admin.fetchAllTopicList().getTopicList())));
    }

    /** Return the address of each broker of the cluster by its name. */
    static JSONObject cluster(JSONObject command) throws Exception {
        return with(command, admin -> {
            JSONObject answer = new JSONObject();
            admin.examineBrokerClusterInfo().getBrokerAddrTable().forEach(
                    (name, data) -> answer.put(name, data.selectBrokerAddr()));
            return answer;
        });
    }

    /** Return what mqadmin's haStatus is told by {@code broker}. */
    static JSONObject haStatus(JSONObject command) throws Exception {
        return with(command, admin ->
                JSONObject.from(admin.getBrokerHAStatus(command.getString("broker"))));
    }

    /** Return what mqadmin's getBrokerEpoch is told by {@code broker}. */
    static JSONObject epochs(JSONObject command) throws Exception {
        return with(command, admin ->
                JSONObject.from(admin.getBrokerEpochCache(command.getString("broker"))));
    }

    /** Return {@code [queueId, min, max, earliestStoreTime, offsetAt(timeMs)]} of each queue. */
    static JSONArray offsets(JSONObject command) throws Exception {
        return with(command, admin -> {
            JSONArray answer = new JSONArray();
            for (Map.Entry<String, ?> broker :
                    admin.examineBrokerClusterInfo().getBrokerAddrTable().entrySet()) {
                for (int id = 0; id < command.getIntValue("queues"); id++) {
                    MessageQueue queue =
                            new MessageQueue(command.getString("topic"), broker.getKey(), id);
                    answer.add(JSONArray.of(
                            id,
                            admin.minOffset(queue),
                            admin.maxOffset(queue),
                            admin.earliestMsgStoreTime(queue),
                            admin.searchOffset(queue, command.getLongValue("timeMs"))));
                }
            }
            return answer;
        });
    }

    static JSONObject brokerConfig(JSONObject command) throws Exception {
        return with(command, admin -> {
            JSONObject answer = new JSONObject();
            admin.getBrokerConfig(command.getString("broker"))
                    .forEach((key, value) -> answer.put(key.toString(), value));
            return answer;
        });
    }

    static JSONObject brokerStats(JSONObject command) throws Exception {
        return with(command, admin -> new JSONObject(
                admin.fetchBrokerRuntimeStats(command.getString("broker")).getTable()));
    }

    /** Run mqadmin with {@code arguments}; return what it prints. */
    static String mqadmin(JSONObject command) {
        String[] arguments = command.getJSONArray("arguments").toArray(new String[0]);
        synchronized (JavaAdmin.class) {
            PrintStream before = System.out;
            ByteArrayOutputStream printed = new ByteArrayOutputStream();
            System.setOut(new PrintStream(printed, true, StandardCharsets.UTF_8));
            try {
                MQAdminStartup.main0(arguments, JavaClient.hook(command));
            } finally {
                System.setOut(before);
            }
            return printed.toString(StandardCharsets.UTF_8);
        }
    }

    private static <T> T with(JSONObject command, Step<T> step) throws Exception {
        DefaultMQAdminExt admin =
                new DefaultMQAdminExt(JavaClient.intOr(command, "timeoutMs", 10_000));
        admin.setNamesrvAddr(command.getString("nameserver"));
        admin.setMqClientApiTimeout(30_000); // 3 s are too few for a cold JVM on a busy machine
        admin.setInstanceName(JavaClient.instanceName(command));
        admin.start();
        try {
            return step.run(admin);
        } finally {
            JavaClient.closeLater(admin::shutdown);
        }
    }
}
